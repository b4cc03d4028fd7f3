package kube

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// order is a checkpoint that was requested in the cluster and is under way in this process.
type order struct {
	asker     asker
	pod       snapshot.PodRef
	plan      *rules.Plan
	requester requester

	// Guarded by orders.mu.
	key      snapshot.Key // zero until the pod's turn has come
	spooled  bool
	ended    bool
	answered bool  // although the cache may not have the answer yet
	closed   bool  // the answer was seen, or the object that asked is gone
	err      error // why it ended without a snapshot, or what failed after the snapshot
}

// requester identifies the object that asked for a checkpoint, and that gets the answer.
type requester struct {
	trigger string // its name; empty: the pod's annotation asks
	pod     string
	in      string // namespace
}

// kick requeues the object.
func (d requester) kick(c *Cluster) {
	if d.trigger != "" {
		c.triggers.kick(client.ObjectKey{Namespace: d.in, Name: d.trigger})
		return
	}
	c.pods.kick(client.ObjectKey{Namespace: d.in, Name: d.pod})
}

// orders are the orders whose answer has not been seen yet. Its methods may be called concurrently.
type orders struct {
	mu  sync.Mutex
	all map[asker]*order
}

func newOrders() *orders { return &orders{all: make(map[asker]*order)} }

// add adds an order. It returns false if its asker has one already, or if its pod is being captured for another
// order.
func (s *orders) add(o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[o.asker] != nil || s.capturing(o.pod.UID) != nil {
		return false
	}
	s.all[o.asker] = o
	return true
}

// named records the key of an order's snapshot.
func (s *orders) named(o *order, k snapshot.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.key = k
}

// capturing returns the order for which a pod is being captured. The caller holds s.mu.
func (s *orders) capturing(podUID string) *order {
	for _, o := range s.all {
		if o.pod.UID == podUID && !o.spooled && !o.ended {
			return o
		}
	}
	return nil
}

// busy reports whether a pod is being captured.
func (s *orders) busy(podUID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capturing(podUID) != nil
}

// done reports whether the next checkpoint of the pod need not wait for this asker's any more.
func (s *orders) done(a asker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[a]
	return o != nil && (o.spooled || o.ended)
}

// plan returns the plan of the order whose turn it is for a pod, or nil. If it is nil, the pod is captured, if at
// all, for something else, even if an order waits for its turn.
func (s *orders) plan(podUID string) *rules.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.capturing(podUID); o != nil && o.key.Name != "" {
		return o.plan
	}
	return nil
}

// of returns a copy of an asker's order.
func (s *orders) of(a asker) (o order, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[a]
	if p == nil {
		return order{}, false
	}
	return *p, true
}

// state returns a copy of a snapshot's order.
func (s *orders) state(k snapshot.Key) (o order, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keyed(k)
	if p == nil {
		return order{}, false
	}
	return *p, true
}

// keyed returns a snapshot's order, or nil. The caller holds s.mu.
func (s *orders) keyed(k snapshot.Key) *order {
	for _, o := range s.all {
		if o.key == k {
			return o
		}
	}
	return nil
}

// answered records that an asker has been answered.
func (s *orders) answered(a asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.all[a]; o != nil {
		o.answered = true
	}
}

// close forgets an asker's order, whose answer was seen, at the end of its checkpoint. It reports whether there is no
// order any more.
func (s *orders) close(a asker) (none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.all[a]; o != nil {
		o.closed = true
		s.forget(o)
	}
	return s.all[a] == nil
}

// gone forgets the orders of an object that no longer asks, at the end of their checkpoints. It keeps the order of
// the asker except.
func (s *orders) gone(d requester, except asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.requester == d && o.asker != except {
			o.closed = true
			s.forget(o)
		}
	}
}

// end records the end of an order's checkpoint, and returns the snapshot's key.
func (s *orders) end(o *order, err error) snapshot.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.ended, o.err, o.spooled = true, err, o.spooled || err == nil
	s.forget(o)
	return o.key
}

// captured records that a snapshot is restorable on this node. It returns its order, or nil if there is none or if
// this was known already.
func (s *orders) captured(k snapshot.Key) *order {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.keyed(k)
	if o == nil || o.spooled {
		return nil
	}
	o.spooled = true
	return o
}

// forget removes an order that is closed and has ended. The caller holds s.mu.
func (s *orders) forget(o *order) {
	if o.closed && o.ended {
		delete(s.all, o.asker)
	}
}
