// Package keylock locks names: of sandboxes, so that one is checkpointed once at a time, and of
// snapshots, so that one is replicated, removed or repaired once at a time.
package keylock

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Locks lets one holder at a time have a name. Others wait in order of arrival. Its methods may be
// called concurrently.
type Locks struct {
	mu    sync.Mutex
	named map[string]*lock
}

// lock is the lock of one name. It exists while somebody has the name or waits for it.
type lock struct {
	sem   *semaphore.Weighted
	users int // guarded by Locks.mu
}

// New returns Locks of which no name is taken.
func New() *Locks { return &Locks{named: make(map[string]*lock)} }

// Lock waits until name is free. It returns what frees the name again, or why ctx was done first.
func (l *Locks) Lock(ctx context.Context, name string) (unlock func(), err error) {
	u := l.enter(name)
	if err := u.sem.Acquire(ctx, 1); err != nil {
		l.leave(name, u)
		return nil, context.Cause(ctx)
	}
	return func() {
		u.sem.Release(1)
		l.leave(name, u)
	}, nil
}

// TryLock is Lock for a caller that does not wait: it returns nil if somebody has the name.
func (l *Locks) TryLock(name string) (unlock func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.named[name] != nil {
		return nil
	}
	u := &lock{sem: semaphore.NewWeighted(1), users: 1}
	l.named[name] = u
	u.sem.TryAcquire(1) // succeeds: it is new
	return func() {
		u.sem.Release(1)
		l.leave(name, u)
	}
}

// Locked reports whether somebody has a name, or waits for it.
func (l *Locks) Locked(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.named[name] != nil
}

// enter counts one more user of a name.
func (l *Locks) enter(name string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.named[name]
	if u == nil {
		u = &lock{sem: semaphore.NewWeighted(1)}
		l.named[name] = u
	}
	u.users++
	return u
}

// leave counts one user of a name less.
func (l *Locks) leave(name string, u *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.users--; u.users == 0 {
		delete(l.named, name)
	}
}
