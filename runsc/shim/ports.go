package shim

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"diapause.dev/runsc/forward"
	"diapause.dev/runsc/shim/sentry"
)

// ports forwards connections from the loopback of the sandbox's network namespace to the sandbox. If that is not
// possible, the sandbox goes without.
type ports struct {
	pod    pod
	sentry sentry.Sentry
	ready  func(context.Context) error // returns an error while nothing may connect to the sandbox
	use    func() (end func())         // notes that a connection uses the pod

	opening sync.WaitGroup
	dials   atomic.Int64 // how many connections runsc was asked to make

	mu      sync.Mutex
	forward *forward.Forwarder // nil: not open
	holds   int                // how many holds forbid connections through gVisor
	paused  func()             // releases the hold of a paused sandbox; nil: it is not paused
}

// addresses returns the addresses of a sandbox that is about to start.
func (p *ports) addresses() []netip.Addr {
	if p.pod.network == "" {
		return nil
	}
	addresses, err := forward.Addresses(p.pod.network)
	if err != nil {
		slog.Warn("read the sandbox's addresses", "sandbox", p.pod.sandbox, "error", err)
	}
	return addresses
}

// open begins to forward to the started sandbox, in the background.
func (p *ports) open(ctx context.Context, addresses []netip.Addr) {
	if p.pod.network == "" {
		return
	}
	id, ctx := p.pod.sandbox, context.WithoutCancel(ctx)
	p.opening.Go(func() {
		f, err := forward.Open(ctx, forward.Options{
			Sandbox:   id,
			Namespace: p.pod.network,
			Addresses: addresses,
			Ready:     p.ready,
			Dial:      p.dial,
			Use:       p.use,
		})
		if err != nil {
			slog.Warn("the sandbox's ports cannot be forwarded", "sandbox", id, "error", err)
			return
		}
		p.opened(f)
	})
}

func (p *ports) opened(f *forward.Forwarder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forward = f
	if p.holds > 0 {
		f.Hold()
	}
}

// hold forbids connections through gVisor until every hold is released. It returns the function that releases this
// one.
func (p *ports) hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds++
	if p.holds == 1 && p.forward != nil {
		p.forward.Hold()
	}
	return sync.OnceFunc(p.release)
}

func (p *ports) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds--
	if p.holds == 0 && p.forward != nil {
		p.forward.Allow()
	}
}

// holdPaused replaces the hold of a paused sandbox. A nil release means no hold. It releases the old one.
func (p *ports) holdPaused(release func()) {
	p.mu.Lock()
	old := p.paused
	p.paused = release
	p.mu.Unlock()
	if old != nil {
		old()
	}
}

// close ends the forwarding.
func (p *ports) close() error {
	p.opening.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.forward
	p.forward = nil
	if f == nil {
		return nil
	}
	return f.Close()
}
