// Package shim is the containerd shim of runtime type io.containerd.diapause.v1: gVisor's shim,
// used as a library, with an extension that gives it checkpoint and restore.
//
// The extension stands before gVisor's task service and adds to it:
//
//   - Create of a pod's sandbox asks the node's agent whether to restore the sandbox. The agent has a
//     bounded time to answer. Without an answer the pod starts as usual, unless its annotations say
//     otherwise.
//   - Start of such a sandbox restores it. gVisor itself then turns the starts of the pod's other
//     containers into a restore, and the last one loads the image. Until then the shim answers the kubelet's probes
//     and hooks.
//   - If only files are restored, Create makes runsc create the sandbox from them, and the containers
//     start as usual.
//   - Checkpoint saves the sandbox with runsc checkpoint, or its files with runsc fscheckpoint. It always
//     leaves the sandbox running. If a pod's annotations enable that, its processes may save it themselves.
//     The agent says where to, and not the annotations.
//   - The pod's memory limit is raised for the time of a save or a restore. It is put back even if the
//     shim dies in between: then by the command that containerd runs when the shim is gone.
//   - A pause that the agent asks for is a lease (package lease): unless it is renewed, the sandbox is resumed.
//   - A restored container gets its terminal from the shim, with its old settings, because runsc gives it
//     none. If it has no terminal, its output passes through the shim, because gVisor does not close an
//     output that no process has any more.
//   - When a terminal is resized, the processes of its container are told.
//   - Connections to the loopback of the pod's network namespace on the host reach the sandbox (package
//     forward). Containerd makes such connections for kubectl port-forward.
//   - A container whose sandbox was stopped after its checkpoint reports the exit status of a process
//     ended by SIGKILL. GVisor's shim would report an internal error.
//   - A sandbox that could not be started or restored is ended at once, and its exit announced, so that
//     neither the shim nor containerd waits for it. The shim also tells the agent of a sandbox that was not
//     created, or never started: the agent can discard what it has prepared for it.
//
// Serve is the process itself, in the place of that of containerd's package for shims, which is too busy for pods
// that sleep. What containerd changes there has to be looked at when that module is updated. While a pod sleeps, its
// connections answer by themselves what containerd asks every second.
//
// There is one shim process for each pod, as with containerd's own shim for runc: Start of a container's shim gives
// containerd the socket of the process that serves the pod's sandbox. A router in it passes each request on to the
// service of its container, and the process ends with its last container. A container of no pod has a process alone.
// Of the agent, the package depends only on the protocol of its local socket.
package shim
