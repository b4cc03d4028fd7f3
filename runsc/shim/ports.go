package shim

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"diapause.dev/runsc/forward"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/log"
)

// ports forwards connections from the loopback of the sandbox's network namespace to the sandbox. If that is not
// possible, the sandbox goes without.
type ports struct {
	opening sync.WaitGroup
	dials   atomic.Int64 // how many connections runsc was asked to make

	mu      sync.Mutex
	forward *forward.Forwarder // nil: not open
	holds   int                // how many holds forbid connections through gVisor
	paused  func()             // releases the hold of a paused sandbox; nil: it is not paused
}

// addresses returns the addresses of a sandbox that is about to start.
func (s *sandbox) addresses() []netip.Addr {
	if s.pod.network == "" {
		return nil
	}
	addresses, err := forward.Addresses(s.pod.network)
	if err != nil {
		log.L.WithError(err).Warnf("addresses of sandbox %s", s.pod.sandbox)
	}
	return addresses
}

// openPorts begins to forward to the started sandbox, in the background.
func (s *sandbox) openPorts(ctx context.Context, addresses []netip.Addr) {
	if s.pod.network == "" {
		return
	}
	id, ctx := s.pod.sandbox, context.WithoutCancel(ctx)
	s.ports.opening.Go(func() {
		f, err := forward.Open(ctx, forward.Options{
			Sandbox:   id,
			Namespace: s.pod.network,
			Addresses: addresses,
			Ready:     s.ready,
			Dial:      s.dial,
			Use:       s.sessions.Begin,
		})
		if err != nil {
			log.L.WithError(err).Warnf("ports of sandbox %s cannot be forwarded", id)
			return
		}
		s.ports.opened(f)
	})
}

// ready returns an error while nothing may connect to the sandbox. It wakes a pod that sleeps.
func (s *sandbox) ready(ctx context.Context) error {
	if err := s.wake(ctx, "port-forward"); err != nil {
		return err
	}
	return s.askable(ctx, s.pod.sandbox)
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

// Pause stops all processes of the sandbox. It first ends connections through gVisor, so that only the caller, and
// not the sandbox, waits for that. No such connection is made until Resume.
func (s *sandbox) Pause(ctx context.Context, r *task.PauseRequest) (*types.Empty, error) {
	if r.ID != s.pod.sandbox {
		return s.containers.Pause(ctx, r)
	}
	release := s.ports.hold()
	resp, err := s.containers.Pause(ctx, r)
	if err != nil {
		release()
		return nil, err
	}
	s.ports.holdPaused(release)
	return resp, nil
}

// resume resumes a paused container. For the sandbox container, it also allows connections through gVisor again.
func (s *sandbox) resume(ctx context.Context, r *task.ResumeRequest) (*types.Empty, error) {
	resp, err := s.containers.Resume(ctx, r)
	if err == nil && r.ID == s.pod.sandbox {
		s.ports.holdPaused(nil)
	}
	return resp, err
}
