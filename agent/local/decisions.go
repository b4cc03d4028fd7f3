package local

import (
	"context"
	"maps"
	"sync"
	"time"

	localv1 "diapause.dev/api/local/v1"
)

const (
	// answerTime is how long a shim waits for one answer; while a decision takes longer it is told
	// to ask again, and so can tell an agent at work from one that hangs.
	answerTime = 200 * time.Millisecond
	// decideTime bounds a decision: a manifest that comes from a slow store, a snapshot that another
	// node is still replicating. When the agent is to stop, the next one decides.
	decideTime = 60 * time.Second
	// decidedGrace is how long a decision is kept for a shim that does not come back.
	decidedGrace = 5 * time.Minute
)

// decisions are what becomes of sandboxes that are being created, one decision for each however
// often its shim asks.
type decisions struct {
	mu  sync.Mutex
	all map[string]*decision // by sandbox
}

// decision is one under way, or made and not told yet.
type decision struct {
	begun time.Time
	made  chan struct{} // closed when resp is set
	resp  *localv1.AskRestoreResponse
}

func newDecisions() *decisions { return &decisions{all: make(map[string]*decision)} }

// about returns the decision about a sandbox, and whether it is new: then the caller makes it.
func (d *decisions) about(sandbox string) (_ *decision, isNew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.all[sandbox]; x != nil {
		return x, false
	}
	maps.DeleteFunc(d.all, func(_ string, x *decision) bool { return time.Since(x.begun) > decideTime+decidedGrace })
	x := &decision{begun: time.Now(), made: make(chan struct{})}
	d.all[sandbox] = x
	return x, true
}

// told ends a decision.
func (d *decisions) told(sandbox string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, sandbox)
}

// withdraw ends a decision that its shim does not wait for any more, and returns it; nil: there is none.
func (d *decisions) withdraw(sandbox string) *decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.all[sandbox]
	delete(d.all, sandbox)
	return x
}

// giveUp lets go of what was prepared, or is about to be, for a sandbox that does not come to be restored.
func (s *shimService) giveUp(sandbox string, reason error) {
	d := s.decisions.withdraw(sandbox)
	if d == nil {
		s.Restores.GiveUp(sandbox, reason)
		return
	}
	s.Life.Go(func() {
		<-d.made
		s.Restores.GiveUp(sandbox, reason)
	})
}

// AskRestore implements localv1.ShimServer.
func (s *shimService) AskRestore(ctx context.Context,
	req *localv1.AskRestoreRequest,
) (*localv1.AskRestoreResponse, error) {
	d, isNew := s.decisions.about(req.SandboxId)
	if isNew {
		s.Life.Go(func() {
			ctx, cancel := s.Life.Outliving(ctx, decideTime, 0)
			defer cancel()
			d.resp = s.decide(ctx, req)
			close(d.made)
		})
	}
	select {
	case <-d.made:
		s.decisions.told(req.SandboxId)
		return d.resp, nil
	case <-time.After(answerTime):
		return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_WAIT}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
