package snapshots

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"diapause.dev/storage"
)

// openWait is how long the first who needs the store wait for it to be opened. Who comes later
// does not wait, while the attempt goes on.
const openWait = 3 * time.Second

// errOpening says that an attempt to open the store has not come to an end.
var errOpening = errors.New("it does not answer; it is being tried")

// Remote is a store, opened when it is first needed and can be reached: an agent starts, and
// takes checkpoints into its spool, while the store is away.
type Remote struct {
	location string
	opened   func() // called when it has been opened
	life     context.Context
	end      context.CancelFunc
	options  storage.Options // set before the first Get

	ids           *storeIDs // or nil; set before the first Get
	mayMake       bool      // a store where there is none
	acceptNetwork bool      // see Options

	mu      sync.Mutex
	store   *storage.Store
	err     error         // of the last attempt to open it
	attempt chan struct{} // closed when the attempt under way ends; nil: there is none
	since   time.Time     // when it began
}

func newRemote(location string, opened func()) *Remote {
	life, end := context.WithCancel(context.Background())
	return &Remote{location: location, opened: opened, life: life, end: end}
}

// Get returns the store, or an error of kind storage.ErrUnavailable.
func (r *Remote) Get(ctx context.Context) (*storage.Store, error) {
	s, attempt, wait := r.try()
	if s != nil {
		return s, nil
	}
	select {
	case <-attempt:
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store != nil {
		return r.store, nil
	}
	err := r.err
	if r.attempt != nil {
		err = errOpening
	}
	return nil, fmt.Errorf("%w: open store %s: %w", storage.ErrUnavailable, r.location, err)
}

// Location returns where the store is, as Options.Store has it.
func (r *Remote) Location() string { return r.location }

// ready returns the store if it is open, without waiting, or nil.
func (r *Remote) ready() *storage.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store
}

// try returns the store if it is open, or else the attempt to open it, begun now or before, and how
// long that may be waited for.
func (r *Remote) try() (*storage.Store, <-chan struct{}, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == nil && r.attempt == nil {
		r.attempt, r.since = make(chan struct{}), time.Now()
		go r.run(r.attempt)
	}
	return r.store, r.attempt, openWait - time.Since(r.since)
}

// run is an attempt to open the store.
func (r *Remote) run(attempt chan struct{}) {
	s, err := r.open()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store, r.err, r.attempt = s, err, nil
	close(attempt)
	if err == nil {
		r.opened()
	}
}

func (r *Remote) open() (*storage.Store, error) {
	s, err := r.openExpected()
	return s, r.ids.advise(r.location, err)
}

// close gives up an attempt under way and closes the store. Get must not be called any more.
func (r *Remote) close() error {
	r.end()
	r.mu.Lock()
	attempt := r.attempt
	r.mu.Unlock()
	if attempt != nil {
		<-attempt
	}
	if r.store == nil {
		return nil
	}
	return r.store.Backend().Close()
}
