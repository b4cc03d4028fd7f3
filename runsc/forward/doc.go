// Package forward forwards connections from the loopback of a pod's network namespace to the pod's sandbox.
//
// For kubectl port-forward, containerd enters the pod's namespace on the host and dials localhost. But gVisor has
// moved the namespace's addresses into its own network stack, which has its own loopback. So nothing listens
// where containerd dials.
//
// A [Forwarder] listens in the namespace. A rule of nftables, in that namespace alone, hands it every TCP
// connection to a loopback address, on any port and without connection tracking (TPROXY). The forwarder connects
// to the same port of the sandbox, and relays. It tries the pod's address first. If nothing listens there, it
// connects through gVisor to the loopback inside the sandbox.
//
// The pod's address comes first because gVisor's own way, runsc port-forward, has four flaws:
//
//   - It ends both directions when one ends.
//   - It loses bytes when the receiver lets its window fill up.
//   - The sandbox cannot be saved while a connection is open.
//   - Until a connection is answered, the sandbox answers no other request.
//
// So the forwarder ends these connections before a save, and before the pause in which the save is made
// ([Forwarder.Hold]).
//
// Only a process that has entered the namespace can connect, and it reaches only that one sandbox. Nothing inside
// the sandbox can enter the namespace.
package forward
