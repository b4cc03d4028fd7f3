package budget

import (
	"fmt"
	"sync"
)

const replicationArguments = "--backlog-size or --backlog-count"

// Replication bounds the snapshots that are in the spool and not in their store yet, which nothing may evict. One
// namespace may have half of it. Its methods may be called concurrently.
type Replication struct {
	bytes   int64
	count   int
	waiting func() []Waiting

	mu     sync.Mutex
	coming map[*Waiting]bool // snapshots that are being made
}

// Waiting is a snapshot that waits for its store, or will.
type Waiting struct {
	Namespace string
	Bytes     int64 // in the spool
}

// NewReplication returns a budget of so many bytes and snapshots; 0 means any number. Waiting returns what is in the
// spool alone.
func NewReplication(bytes int64, count int, waiting func() []Waiting) *Replication {
	return &Replication{bytes: bytes, count: count, waiting: waiting, coming: make(map[*Waiting]bool)}
}

// Promise refuses a snapshot of about n bytes if its namespace, or the node, has reached the bound. A large snapshot is
// not refused because of its own size, so that the bound is exceeded by one snapshot at most. The promise ends with
// release, which may be called more than once; the snapshot should be among those that wait by then.
func (r *Replication) Promise(namespace string, n int64) (release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, own := r.sum(namespace)
	if r.full(own, 2) {
		return nil, refuse(replicationName, "%d snapshots of namespace %s with %s are or will be on this node alone, until "+
			"they are in their store, and a namespace may have half of %s: make sure that the store can be reached, "+
			"or raise %s", own.count, namespace, mib(own.bytes), r.bound(), replicationArguments)
	}
	if r.full(all, 1) {
		return nil, refuse(replicationName, "%d snapshots with %s are or will be on this node alone, until they are in "+
			"their store, and the bound is %s: make sure that the store can be reached, or raise %s", all.count, mib(all.bytes),
			r.bound(), replicationArguments)
	}
	w := &Waiting{Namespace: namespace, Bytes: n}
	r.coming[w] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.coming, w)
	}, nil
}

// sums is a number of snapshots and their bytes.
type sums struct {
	count int
	bytes int64
}

// sum sums up what waits on the node, and of a namespace. The caller holds r.mu.
func (r *Replication) sum(namespace string) (all, own sums) {
	add := func(w Waiting) {
		all.count, all.bytes = all.count+1, all.bytes+w.Bytes
		if w.Namespace == namespace {
			own.count, own.bytes = own.count+1, own.bytes+w.Bytes
		}
	}
	for _, w := range r.waiting() {
		add(w)
	}
	for w := range r.coming {
		add(*w)
	}
	return all, own
}

// full reports whether a part of the budget is used up: the part is the budget divided by share.
func (r *Replication) full(s sums, share int64) bool {
	return r.bytes > 0 && s.bytes >= max(r.bytes/share, 1) || r.count > 0 && int64(s.count) >= max(int64(r.count)/share, 1)
}

// bound is the budget as messages have it.
func (r *Replication) bound() string {
	switch {
	case r.count == 0:
		return mib(r.bytes)
	case r.bytes == 0:
		return fmt.Sprintf("%d snapshots", r.count)
	}
	return fmt.Sprintf("%d snapshots and %s", r.count, mib(r.bytes))
}
