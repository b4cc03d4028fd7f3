// Package shim is the containerd shim of runtime type io.containerd.diapause.v1: gVisor's shim,
// used as a library, with an extension that gives it checkpoint and restore.
//
// The extension stands before gVisor's task service and adds to it:
//
//   - Create of a pod's sandbox asks the agent of this node whether the sandbox shall be restored.
//     The agent has a bounded time to answer; without an answer the pod starts as usual, unless its
//     annotations say otherwise.
//   - Start of such a sandbox restores it. gVisor then turns the start of the pod's other
//     containers into a restore by itself, and the last one loads the image.
//   - Where files alone are restored, Create has runsc make the sandbox from them, and its containers
//     start as usual.
//   - Checkpoint saves the sandbox with runsc checkpoint, or its files with runsc fscheckpoint, always
//     leaving it running. A pod's processes may do either themselves if its annotations enable that: to
//     where the agent says, whatever the pod's annotations name.
//   - The pod's memory limit is raised for the time of a save or a restore, and put back whoever dies in
//     between: by the shim, or by what containerd runs when the shim is gone.
//   - A pause that the agent asks for is a lease (package lease): unless it is renewed, the sandbox is resumed.
//   - A container that is restored gets its terminal from here, set as it was, for runsc gives it none. What
//     it writes without one passes through here, since gVisor does not close an output that no process has.
//   - A resized terminal is told to the processes of its container.
//   - What connects to the loopback of the pod's network namespace on the host, as containerd does for
//     kubectl port-forward, reaches the sandbox (package forward).
//   - A container whose sandbox was stopped after its checkpoint reports the exit status of a
//     process ended by SIGKILL, where gVisor's shim would report an internal error.
//   - A sandbox that could not be started or restored is ended at once, and its exit announced, so
//     that neither the shim nor containerd waits for it. The agent is told, also of a sandbox that was not
//     created, or never started: what it has prepared for that is of no use any more.
//
// There is one process of the shim for each container, or one for each pod when gVisor's grouping
// is enabled. The package depends on nothing of the agent but the protocol of its local socket.
package shim
