package start

import (
	"context"
	"sync"

	"diapause.dev/agent/keylock"
	"diapause.dev/api/snapshot"
)

// turns keeps the outcomes of a pod's restores in order: what waits for the API server must not overwrite what has
// happened since. Its methods may be called concurrently.
type turns struct {
	writing *keylock.Locks // by pod: one outcome is written at a time

	mu   sync.Mutex
	next int
	pods map[string]*podTurns // those of which an outcome is to be written
}

// podTurns are the outcomes of one pod that are to be written.
type podTurns struct {
	newest int
	open   int
}

func newTurns() *turns { return &turns{writing: keylock.New(), pods: make(map[string]*podTurns)} }

// turn is the place of one outcome among those of its pod.
type turn struct {
	all  *turns
	pod  string
	rank int
	once sync.Once // ends it
}

// begin returns the turn of an outcome that has just come. The caller ends it once nothing is to be written any more.
func (t *turns) begin(ref snapshot.PodRef) *turn {
	pod := ref.String() + " " + ref.UID
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	p := t.pods[pod]
	if p == nil {
		p = &podTurns{}
		t.pods[pod] = p
	}
	p.newest = t.next
	p.open++
	return &turn{all: t, pod: pod, rank: t.next}
}

// end forgets the outcome.
func (u *turn) end() {
	u.once.Do(func() {
		u.all.mu.Lock()
		defer u.all.mu.Unlock()
		p := u.all.pods[u.pod]
		if p.open--; p.open == 0 {
			delete(u.all.pods, u.pod)
		}
	})
}

// write calls f, unless there is a newer outcome. No other outcome of the pod is written meanwhile. It reports whether
// this outcome is done.
func (u *turn) write(ctx context.Context, f func() bool) (done bool) {
	unlock, err := u.all.writing.Lock(ctx, u.pod)
	if err != nil {
		return false
	}
	defer unlock()
	return u.overtaken() || f()
}

// overtaken reports whether the pod has a newer outcome.
func (u *turn) overtaken() bool {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	p := u.all.pods[u.pod]
	return p == nil || p.newest > u.rank
}
