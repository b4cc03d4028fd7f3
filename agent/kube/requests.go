package kube

import (
	"sync"

	"diapause.dev/agent"
	"diapause.dev/api/snapshot"
)

// requests are the agent's requests as its journal has them, by the snapshot they make; the newest
// of each. Its methods may be called concurrently.
type requests struct {
	mu  sync.Mutex
	all map[snapshot.Key]agent.Request
}

func newRequests() *requests { return &requests{all: make(map[snapshot.Key]agent.Request)} }

// put takes the word of the agent for a request's next step.
func (r *requests) put(q agent.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[q.Key] = q
}

// load takes what the journal holds, oldest first, unless something newer has been told meanwhile.
func (r *requests) load(all []agent.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range all {
		if old, ok := r.all[q.Key]; ok && (old.ID == q.ID || q.Created.Before(old.Created)) {
			continue
		}
		r.all[q.Key] = q
	}
}

func (r *requests) get(k snapshot.Key) (agent.Request, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, ok := r.all[k]
	return q, ok
}

// drop forgets a request of which nothing more is to be told, unless there is a newer one.
func (r *requests) drop(q agent.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[q.Key].ID == q.ID {
		delete(r.all, q.Key)
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

// spooled reports whether a request's snapshot was restorable on its node at some time.
func spooled(q agent.Request) bool {
	return q.Stage == agent.StageSpooled || q.Stage == agent.StageReplicated
}
