// Package runsc and the packages below it contain everything that depends on gVisor.
//
//   - runsc: facts of a node that decide what can be restored on it, and a sandbox's memory.
//   - runsc/sidecar: the program between a sentry and the agent, and their wire protocol.
//   - runsc/gofer: the agent's end of that wire.
//   - runsc/capture: taking a sandbox's image files during the pause.
//   - runsc/volume: the file trees of volumes that lie on the node, and streams of them.
//   - runsc/forward: connections to a sandbox's ports.
//   - runsc/shim: the extension of gVisor's containerd shim.
package runsc
