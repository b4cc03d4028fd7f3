package agent

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// turns lets one holder at a time have a name; others wait in order of arrival.
type turns struct {
	mu    sync.Mutex
	named map[string]*turn
}

type turn struct {
	sem   *semaphore.Weighted
	users int
}

func newTurns() *turns { return &turns{named: make(map[string]*turn)} }

// take waits until name is free and returns what gives it back.
func (t *turns) take(ctx context.Context, name string) (release func(), err error) {
	t.mu.Lock()
	u := t.named[name]
	if u == nil {
		u = &turn{sem: semaphore.NewWeighted(1)}
		t.named[name] = u
	}
	u.users++
	t.mu.Unlock()
	if err := u.sem.Acquire(ctx, 1); err != nil {
		t.leave(name, u)
		return nil, context.Cause(ctx)
	}
	return func() {
		u.sem.Release(1)
		t.leave(name, u)
	}, nil
}

// try is take for who does not wait: it returns nil if the name is not free.
func (t *turns) try(name string) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.named[name] != nil {
		return nil
	}
	u := &turn{sem: semaphore.NewWeighted(1), users: 1}
	t.named[name] = u
	u.sem.TryAcquire(1) // succeeds: it is new
	return func() {
		u.sem.Release(1)
		t.leave(name, u)
	}
}

func (t *turns) leave(name string, u *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.users--; u.users == 0 {
		delete(t.named, name)
	}
}

// taken reports whether somebody has a name, or waits for it.
func (t *turns) taken(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named[name] != nil
}
