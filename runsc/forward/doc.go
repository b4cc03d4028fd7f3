// Package forward brings to a sandbox what connects to the loopback of its pod's network namespace.
//
// That is where containerd, for kubectl port-forward, looks for a port of a pod: it enters the
// namespace on the host and dials localhost. GVisor has taken the namespace's addresses for a network
// stack of its own, whose loopback is another, so that nothing listens there.
//
// A [Forwarder] listens in the namespace. A rule of nftables, in that namespace alone, hands it every
// TCP connection to a loopback address, whatever the port, and without connection tracking (TPROXY).
// The forwarder connects to the same port of the sandbox and relays: by way of the pod's address or,
// where nothing listens on that, by way of gVisor, to the loopback inside the sandbox.
//
// The pod's address comes first for what gVisor's own way, runsc port-forward, lacks: it ends both
// directions when one ends, it loses bytes when the receiver lets its window fill up, the sandbox cannot
// be saved while a connection is open, and until one is answered nothing else can be asked of the sandbox.
// So these connections are ended before a save, and before the pause in which it is made
// ([Forwarder.Hold]).
//
// Only who has entered the namespace can connect, which nothing inside the sandbox can, and whoever
// does reaches that one sandbox.
package forward
