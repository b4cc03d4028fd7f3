package local

import (
	"maps"
	"sync"
	"time"

	localv1 "diapause.dev/api/local/v1"
)

const (
	// answerTime is how long a shim waits for one answer. If the decision takes longer, the answer is to ask again. So the
	// shim can tell an agent that works from one that hangs.
	answerTime = 200 * time.Millisecond
	// decideTime bounds a decision: a slow store may have the manifest, or another node may still replicate the snapshot.
	// When the agent stops, the next agent decides.
	decideTime = 60 * time.Second
	// decidedGrace is how long a decision is kept for a shim that does not come back.
	decidedGrace = 5 * time.Minute
)

// decisions holds the decisions about sandboxes that are being created. Each sandbox has one decision, however often
// its shim asks.
type decisions struct {
	mu  sync.Mutex
	all map[string]*decision // by sandbox
}

// decision is a decision that is under way, or made and not yet sent to its shim.
type decision struct {
	begun time.Time
	made  chan struct{} // closed when resp is set
	resp  *localv1.AskRestoreResponse
}

func newDecisions() *decisions { return &decisions{all: make(map[string]*decision)} }

// about returns the decision about a sandbox. If isNew is true, the caller must make it.
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

// told removes a decision that was sent to its shim.
func (d *decisions) answered(sandbox string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, sandbox)
}

// withdraw removes a decision for which its shim no longer waits, and returns it, or nil if there is none.
func (d *decisions) withdraw(sandbox string) *decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.all[sandbox]
	delete(d.all, sandbox)
	return x
}

// giveUp releases what was prepared, or is being prepared, for a sandbox that will not be restored.
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
