package shim

import (
	"log/slog"
	"sync"

	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/sleep"
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
func (r *responder) begin(n *sleep.Network, b bundle, f *kubelet.Finder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == nil || r.ended || r.network != nil {
		return
	}
	pid, err := b.process()
	if err == nil {
		r.network, err = sleep.NewResponder(n, kubelet.NewProber(f), pid)
	}
	if err != nil {
		slog.Warn("probes fail until the sandbox has all its containers", "error", err)
	}
}

// drain has a sandbox that has loaded answer by itself, once the probes that are under way are over. It waits for
// these a little. After an error the sandbox may be deaf.
func (r *responder) drain() error {
	network := r.take()
	if network == nil {
		return nil
	}
	network.Drain()
	return network.Close()
}

// end ends the answers at once, for a sandbox that is to end.
func (r *responder) end() {
	if network := r.take(); network != nil {
		if err := network.Close(); err != nil {
			slog.Warn("end the answers to probes", "error", err)
		}
	}
}

// take takes what answers away, for good. Nil: nothing answers.
func (r *responder) take() *sleep.Responder {
	r.mu.Lock()
	defer r.mu.Unlock()
	network := r.network
	r.network, r.ended = nil, true
	return network
}
