package kube

import (
	"sync"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
)

// requests are the agent's requests as its journal has them, by the snapshot they make; the newest
// of each. Its methods may be called concurrently.
type requests struct {
	mu     sync.Mutex
	all    map[snapshot.Key]heard
	marked map[mark]snapshot.Key
	turns  int
}

// heard is a request that was heard of.
type heard struct {
	journal.Request
	turn  int // the how manieth it was
	since time.Time
}

func newRequests() *requests {
	return &requests{all: make(map[snapshot.Key]heard), marked: make(map[mark]snapshot.Key)}
}

// put takes the word of the agent for a request's next step.
func (r *requests) put(q journal.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(q)
}

// keep is put; r.mu is held.
func (r *requests) keep(q journal.Request) {
	h, ok := r.all[q.Key]
	if !ok || h.ID != q.ID {
		r.turns++
		h.turn, h.since = r.turns, time.Now()
	}
	h.Request = q
	r.all[q.Key], r.marked[markOf(q.Key)] = h, q.Key
}

// load takes what the journal holds, oldest first, unless something newer has been told meanwhile.
func (r *requests) load(all []journal.Request) {
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

// find returns the key of a request whose name says something of who asked.
func (r *requests) find(m mark) (snapshot.Key, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.marked[m]
	return k, ok
}

// before returns the snapshots of a pod's requests that were heard of before another one, though not
// longer ago than some time, and that have not failed.
func (r *requests) before(q journal.Request, ago time.Duration) (out []snapshot.Key) {
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

func (r *requests) get(k snapshot.Key) (journal.Request, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.all[k]
	return h.Request, ok
}

// drop forgets a request of which nothing more is to be told, unless there is a newer one.
func (r *requests) drop(q journal.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[q.Key].ID == q.ID {
		delete(r.all, q.Key)
		if m := markOf(q.Key); r.marked[m] == q.Key {
			delete(r.marked, m)
		}
	}
}

// keys returns the snapshots of all requests.
func (r *requests) keys() (out []snapshot.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.all {
		out = append(out, k)
	}
	return out
}

// stopping reports whether a pod is still to be stopped whose snapshot was made.
func stopping(q journal.Request) bool {
	return q.Stage == journal.StageSpooled && q.Stop && !q.Stopped && q.RunsOn == ""
}

// spooled reports whether a request's snapshot was restorable on its node at some time.
func spooled(q journal.Request) bool {
	return q.Stage == journal.StageSpooled || q.Stage == journal.StageReplicated
}
