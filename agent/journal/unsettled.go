package journal

import (
	"maps"
	"slices"
	"sync"
)

// Unsettled holds requests that are over while work for them remains: a sandbox that could not be resumed, or a record
// that could not be written. Its methods may be called concurrently.
type Unsettled struct {
	mu   sync.Mutex
	recs map[string]*Record // by request
}

// NewUnsettled returns an empty Unsettled.
func NewUnsettled() *Unsettled { return &Unsettled{recs: make(map[string]*Record)} }

// Add adds a copy of a record, so that the caller may go on changing its own.
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

// Remove forgets a record that List has returned, unless a newer record of the same request was added since.
func (u *Unsettled) Remove(r *Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.recs[r.ID] == r {
		delete(u.recs, r.ID)
	}
}

// Has reports whether work remains for a request.
func (u *Unsettled) Has(request string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.recs[request] != nil
}
