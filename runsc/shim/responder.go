package shim

import (
	"sync"

	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/log"
)

// responder answers the kubelet's probes over the network, and postStart hooks by HTTP, while a sandbox waits for its
// other containers: see execprobes.go. Its methods may be called concurrently. The zero value answers nothing.
type responder struct {
	mu      sync.Mutex
	network *sleep.Responder // nil: it answers nothing
	ended   bool
}

// begin begins to answer at the interfaces of a network. If that is not possible, the pod goes without: the kubelet
// gives up a container whose startup probe or hook fails, and the restore has failed then.
func (r *responder) begin(n *sleep.Network) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == nil || r.ended || r.network != nil {
		return
	}
	var err error
	if r.network, err = sleep.NewResponder(n, kubelet.NewProber()); err != nil {
		log.L.WithError(err).Warn("probes fail until the sandbox has all its containers")
	}
}

// drain ends the answers once the probes that are under way are over, which it waits for a little.
func (r *responder) drain() {
	r.mu.Lock()
	network := r.network
	r.mu.Unlock()
	if network != nil {
		network.Drain()
	}
	r.end()
}

// end ends the answers for good.
func (r *responder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.network == nil {
		return
	}
	if err := r.network.Close(); err != nil {
		log.L.WithError(err).Warn("end the answers to probes")
	}
	r.network = nil
}
