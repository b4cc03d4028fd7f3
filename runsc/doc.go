// Package runsc and the packages below it contain everything that depends on gVisor.
//
//   - runsc: facts of a node that decide what can be restored on it, and a sandbox's memory.
//   - runsc/sidecar: the program between a sentry and the agent, and their wire protocol.
//   - runsc/gofer: the agent's end of that wire.
//   - runsc/capture: taking a sandbox's image files during the pause.
//   - runsc/volume: the file trees of volumes that lie on the node, and streams of them.
//   - runsc/hostfile: the files that a sandbox has open in volumes outside its snapshot, and whether they have changed.
//   - runsc/cgroup: the memory cgroup of a process, its limits, and how to raise them for an operation.
//   - runsc/lease: pauses that end unless their holder renews them.
//   - runsc/terminal: the settings of terminals, and the file by which a shim tells the agent about them.
//   - runsc/forward: connections to a sandbox's ports.
//   - runsc/peercred: the process at the other end of a Unix socket.
//   - runsc/shim: the extension of gVisor's containerd shim.
package runsc
