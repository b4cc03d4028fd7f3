// Package runsc and the packages below it hold all that knows gVisor.
//
//   - runsc: facts of a node that decide what can be restored on it, and a sandbox's memory.
//   - runsc/sidecar: the program between a sentry and the agent, and its wire.
//   - runsc/gofer: the agent's end of that wire.
//   - runsc/capture: taking a sandbox's image files inside the pause.
//   - runsc/volume: the trees of volumes that lie on the node, and streams of them.
//   - runsc/forward: connections to a sandbox's ports.
//   - runsc/shim: the extension of gVisor's containerd shim.
package runsc
