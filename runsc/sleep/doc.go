// Package sleep has what a sleeping pod needs on its node while its sandbox is gone: the orders by which the agent
// speaks about it to the pod's shim, the pod's network configuration, and a waker.
//
// A pod that falls asleep is saved, and then its sandbox ends. Everything else stays: the pod, its network namespace
// with the interface, its volumes, its cgroup, and its shim. Nothing has the pod's address meanwhile, so nothing
// refuses or resets a connection. The waker answers for the address where a neighbour asks for it, and holds the
// packets that arrive. The first one wakes the pod: its sandbox is restored under the same ids, with the same address,
// and then gets the packets that were held.
//
// A sandbox that is restored, and waits for its containers, has no network either. A responder answers the kubelet's
// probes for it, as the waker does for a pod that sleeps.
//
// All frames come from other machines or pods, and are hostile. The waker reads them with fixed bounds, keeps no more
// than a fixed amount, and answers with nothing except the pod's own hardware address, and success to probes.
package sleep
