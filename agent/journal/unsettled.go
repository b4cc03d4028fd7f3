package journal

import (
	"maps"
	"slices"
	"sync"
)

// Unsettled are requests that are over while something of theirs is still to be done: a sandbox that
// could not be resumed, a record that could not be written. Its methods may be called concurrently.
type Unsettled struct {
	mu   sync.Mutex
	recs map[string]*Record // by request
}

// NewUnsettled returns Unsettled with no request.
func NewUnsettled() *Unsettled { return &Unsettled{recs: make(map[string]*Record)} }

// Add takes a copy of a record, so that the caller may go on changing its own.
func (u *Unsettled) Add(r *Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.recs[r.ID] = r.Clone()
}

// List returns all records. They belong to the one caller that settles them.
func (u *Unsettled) List() []*Record {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.recs))
}

// Remove forgets a record that List has returned, unless a newer one of the request was added since.
func (u *Unsettled) Remove(r *Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.recs[r.ID] == r {
		delete(u.recs, r.ID)
	}
}

// Has reports whether something is still to be done for a request.
func (u *Unsettled) Has(request string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.recs[request] != nil
}
