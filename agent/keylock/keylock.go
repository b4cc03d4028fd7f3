// Package keylock locks names: those of sandboxes, so that each has one checkpoint at a time, and those of snapshots,
// so that each has one replication, removal or repair at a time.
package keylock

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Locks gives each name to one holder at a time. The others wait in order of arrival. Its methods may be called
// concurrently.
type Locks struct {
	mu    sync.Mutex
	named map[string]*lock
}

// lock is the lock of one name. It exists while a caller holds the name or waits for it.
type lock struct {
	sem   *semaphore.Weighted
	users int // guarded by Locks.mu
}

// New returns Locks that hold no name.
func New() *Locks { return &Locks{named: make(map[string]*lock)} }

// Lock waits until name is free. It returns a function that frees name, or, if ctx is done first, the cause of that.
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

// TryLock is like Lock, but does not wait. It returns nil if a caller holds name or waits for it.
func (l *Locks) TryLock(name string) (unlock func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.named[name] != nil {
		return nil
	}
	u := &lock{sem: semaphore.NewWeighted(1), users: 1}
	l.named[name] = u
	u.sem.TryAcquire(1) // always succeeds: the lock is new
	return func() {
		u.sem.Release(1)
		l.leave(name, u)
	}
}

// Locked reports whether a caller holds name or waits for it.
func (l *Locks) Locked(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.named[name] != nil
}

// enter adds a user of a name.
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

// leave removes a user of a name.
func (l *Locks) leave(name string, u *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.users--; u.users == 0 {
		delete(l.named, name)
	}
}
