package record

import (
	"sync"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
)

// Reported are the requests of the agent's journal, as the agent has reported them, by the snapshot that they make:
// for each snapshot the newest request. Its methods may be called concurrently.
type Reported struct {
	mu     sync.Mutex
	all    map[snapshot.Key]heard
	marked map[mark]snapshot.Key
	turns  int
}

// heard is a request that the agent has reported.
type heard struct {
	journal.Request
	turn  int // its number, in the job in which requests were reported
	since time.Time
}

func newReported() *Reported {
	return &Reported{all: make(map[snapshot.Key]heard), marked: make(map[mark]snapshot.Key)}
}

// Put records the next step of a request.
func (r *Reported) Put(q journal.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(q)
}

// keep is Put. The caller holds r.mu.
func (r *Reported) keep(q journal.Request) {
	h, ok := r.all[q.Key]
	if !ok || h.ID != q.ID {
		r.turns++
		h.turn, h.since = r.turns, time.Now()
	}
	h.Request = q
	r.all[q.Key], r.marked[markOf(q.Key)] = h, q.Key
}

// Load adds the requests in the journal, oldest first. It skips those of which something newer was reported
// meanwhile.
func (r *Reported) Load(all []journal.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range all {
		if old, ok := r.all[q.Key]; ok && (old.ID == q.ID || q.Created.Before(old.Created)) {
			continue
		}
		r.keep(q)
		if h := r.all[q.Key]; q.Stage == journal.StageReplicated || q.Stage == journal.StageFailed { // long ago
			h.since = time.Time{}
			r.all[q.Key] = h
		}
	}
}

// Begin has those that were reported so far count as reported now. Before that nobody could act on them.
func (r *Reported) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.all {
		if !h.since.IsZero() {
			h.since = time.Now()
			r.all[k] = h
		}
	}
}

// find returns the key of a request with this mark.
func (r *Reported) find(m mark) (snapshot.Key, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.marked[m]
	return k, ok
}

// Before returns the snapshots of those requests for a pod that were reported before another request and have not
// failed. It leaves out requests that were reported longer ago than ago.
func (r *Reported) Before(q journal.Request, ago time.Duration) (out []snapshot.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.all {
		if h.Stage != journal.StageFailed && h.turn < r.all[q.Key].turn && h.Pod.String() == q.Pod.String() &&
			time.Since(h.since) < ago {
			out = append(out, k)
		}
	}
	return out
}

// Get returns the request that makes a snapshot.
func (r *Reported) Get(k snapshot.Key) (journal.Request, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.all[k]
	return h.Request, ok
}

// Drop forgets a request that needs no further report, unless there is a newer one for its snapshot.
func (r *Reported) Drop(q journal.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[q.Key].ID == q.ID {
		delete(r.all, q.Key)
		if m := markOf(q.Key); r.marked[m] == q.Key {
			delete(r.marked, m)
		}
	}
}

// Keys returns the snapshots of all requests.
func (r *Reported) Keys() (out []snapshot.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.all {
		out = append(out, k)
	}
	return out
}

// Stopping reports whether a snapshot was made and its pod is still to be stopped.
func Stopping(q journal.Request) bool {
	return q.Stage == journal.StageSpooled && q.Stop && !q.Stopped && q.RunsOn == ""
}

// Spooled reports whether a request's snapshot was restorable on its node at some time.
func Spooled(q journal.Request) bool {
	return q.Stage == journal.StageSpooled || q.Stage == journal.StageReplicated
}
