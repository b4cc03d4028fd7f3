package snapshots

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"diapause.dev/agent/place"
	"diapause.dev/storage"
)

// openWait is how long callers wait for the store to be opened, counted from the start of the attempt. Later callers do
// not wait; the attempt goes on.
const openWait = 3 * time.Second

// errOpening says that an attempt to open the store is still under way.
var errOpening = errors.New("it has not answered yet; the agent keeps trying")

// Remote is a store that is opened when it is first needed and can be reached. So an agent can start, and take
// checkpoints into its spool, while the store is unreachable.
type Remote struct {
	location string
	opened   func() // called when it has been opened
	life     context.Context
	end      context.CancelFunc
	options  storage.Options // set before the first Get

	ids    *storeIDs // or nil; set before the first Get
	access place.Access
	// measure returns a backend that measures another. Nil measures none.
	measure func(storage.Backend) storage.Backend

	mu      sync.Mutex
	store   *storage.Store
	err     error         // of the last attempt to open it
	attempt chan struct{} // closed when the attempt under way ends; nil: there is none
	since   time.Time     // when the attempt began
}

func newRemote(location string, opened func()) *Remote {
	life, end := context.WithCancel(context.Background()) // until Close: callers share an attempt
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

// Location returns the store's location, in the syntax of Options.Store.
func (r *Remote) Location() string { return r.location }

// ready returns the store if it is open, or nil. It does not wait.
func (r *Remote) ready() *storage.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store
}

// try returns the store if it is open. Otherwise it returns the attempt to open it, which it starts if none is under
// way, and how long the caller may wait for the attempt.
func (r *Remote) try() (*storage.Store, <-chan struct{}, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == nil && r.attempt == nil {
		r.attempt, r.since = make(chan struct{}), time.Now()
		go r.run(r.attempt)
	}
	return r.store, r.attempt, openWait - time.Since(r.since)
}

// run makes one attempt to open the store.
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

// openExpected opens the store at a location, which must be the one that was there before.
func (r *Remote) openExpected() (*storage.Store, error) {
	id, err := r.ids.expected(r.location)
	if err != nil {
		return nil, err
	}
	how := r.access
	how.MayMake = how.MayMake && id == ""
	b, err := how.Open(r.life, r.location)
	if errors.Is(err, place.ErrNoStore) && id != "" {
		return nil, fmt.Errorf("%w: %w, and store %s was expected", storage.ErrIdentity, err, id)
	}
	if err != nil {
		return nil, err
	}
	o := r.options
	o.Identity = id
	measured := b
	if r.measure != nil {
		measured = r.measure(b)
	}
	s, err := storage.Open(r.life, measured, o)
	if err == nil {
		err = place.CheckCreateOnly(r.life, b)
	}
	if err == nil && id == "" {
		err = r.ids.record(r.location, s.Identity())
	} else if err == nil {
		r.ids.opened(r.location)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

// close cancels an attempt under way and closes the store. Get must not be called afterwards.
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
