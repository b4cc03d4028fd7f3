package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// order is a checkpoint that was asked for in the cluster and is under way in this process.
type order struct {
	key  snapshot.Key
	pod  agent.PodRef
	plan *rules.Plan
	door door

	// Guarded by orders.mu.
	spooled  bool
	ended    bool
	answered bool  // though the cache may not have the answer yet
	closed   bool  // the answer was seen, or who asked is gone
	err      error // why it ended without a snapshot, or what failed after it
}

// door is where an order came in: the object that asks and is answered.
type door struct {
	trigger string // its name; empty: the pod's annotation asks
	pod     string
	in      string // namespace
}

// kick has the object looked at again.
func (d door) kick(c *Cluster) {
	if d.trigger != "" {
		c.triggers.kick(client.ObjectKey{Namespace: d.in, Name: d.trigger})
		return
	}
	c.pods.kick(client.ObjectKey{Namespace: d.in, Name: d.pod})
}

// orders are those whose answer has not been seen yet. Its methods may be called concurrently.
type orders struct {
	mu  sync.Mutex
	all map[snapshot.Key]*order
}

func newOrders() *orders { return &orders{all: make(map[snapshot.Key]*order)} }

// add takes an order up, unless there is one for its snapshot, or its pod is being captured for
// another.
func (s *orders) add(o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[o.key] != nil || s.capturing(o.pod.UID) != nil {
		return false
	}
	s.all[o.key] = o
	return true
}

// capturing returns the order for which a pod is being captured; s.mu is held.
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

// done reports whether an order's checkpoint keeps nobody waiting any more.
func (s *orders) done(k snapshot.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[k]
	return o != nil && (o.spooled || o.ended)
}

// plan returns the plan of the order for which a pod is being captured, or nil.
func (s *orders) plan(podUID string) *rules.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.capturing(podUID); o != nil {
		return o.plan
	}
	return nil
}

// state returns an order as it is now.
func (s *orders) state(k snapshot.Key) (o order, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[k]
	if p == nil {
		return order{}, false
	}
	return *p, true
}

// answered notes that an order has been answered.
func (s *orders) answered(k snapshot.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.all[k]; o != nil {
		o.answered = true
	}
}

// close forgets the order of a snapshot whose answer was seen, at the end of its checkpoint.
func (s *orders) close(k snapshot.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.all[k]; o != nil {
		o.closed = true
		s.forget(o)
	}
}

// gone forgets the orders of an object that asks no more, except for one snapshot, at the end of
// their checkpoints.
func (s *orders) gone(d door, except snapshot.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.door == d && o.key != except {
			o.closed = true
			s.forget(o)
		}
	}
}

// end notes the end of an order's checkpoint.
func (s *orders) end(o *order, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.ended, o.err, o.spooled = true, err, o.spooled || err == nil
	s.forget(o)
}

// captured notes that an order's snapshot is restorable on this node.
func (s *orders) captured(o *order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.spooled = true
}

// forget removes an order of which nothing more is to come; s.mu is held.
func (s *orders) forget(o *order) {
	if o.closed && o.ended {
		delete(s.all, o.key)
	}
}

// begin takes up an order and starts its checkpoint, which Run waits for. It does nothing if there
// is one already.
func (c *Cluster) begin(o *order) error {
	if !c.orders.add(o) {
		return nil
	}
	if err := c.ledger.put(entry{Key: o.key, Pod: o.pod, Plan: o.plan, Trigger: o.door.trigger}); err != nil {
		c.orders.close(o.key)
		c.orders.end(o, err)
		return err
	}
	c.work.Go(func() { c.checkpoint(o) })
	return nil
}

// checkpoint carries an order out and has its outcome looked at.
func (c *Cluster) checkpoint(o *order) {
	log := c.log.With("pod", o.pod.String(), "snapshot", o.key.String())
	_, err := c.node.Checkpoint(c.life, c.life, agent.CheckpointOptions{
		Target: o.pod.UID, Name: o.key.Name, Stop: o.plan.Stop, Completed: o.plan.Stop,
		Spooled: func(*agent.Found) {
			c.orders.captured(o)
			c.progressed(o.key)
			c.nextTurn(o.pod)
		},
	})
	if errors.Is(err, agent.ErrNotReplicated) {
		log.Warn("the snapshot is on this node only, for now", "error", err)
		err = nil
	} else if err != nil {
		log.Error("checkpoint failed", "error", err)
	}
	c.orders.end(o, err)
	c.progressed(o.key)
	o.door.kick(c)
	c.nextTurn(o.pod)
}

// progressed has everybody look again who waits for a snapshot: its PodSnapshot first, then who
// asked for it.
func (c *Cluster) progressed(k snapshot.Key) {
	c.snapshots.kick(named(k))
	if o, ok := c.orders.state(k); ok {
		o.door.kick(c)
	}
}

// outcome is how far a checkpoint has come.
type outcome int

const (
	unknown  outcome = iota // nobody has heard of it
	underWay                // a request works on it
	safe                    // there is a snapshot
	failed                  // there will be none
)

// outcome returns how far the checkpoint of a snapshot has come, and why it failed if it did.
func (c *Cluster) outcome(ctx context.Context, k snapshot.Key) (outcome, string) {
	if e, ok := c.ledger.get(k); ok && e.Deleted {
		return failed, fmt.Sprintf("PodSnapshot %s was deleted while it was being made", k)
	}
	o, ordered := c.orders.state(k)
	q, known := c.requests.get(k)
	switch {
	case ordered && o.spooled, known && spooled(q):
		return safe, ""
	case known && q.Stage == agent.StageFailed:
		switch local, err := c.node.HasLocal(ctx, k); {
		case err != nil:
			return underWay, ""
		case local: // it only did not get into the store
			return safe, ""
		}
		return failed, q.Error
	case ordered && o.ended:
		return failed, o.err.Error()
	case ordered, known:
		return underWay, ""
	}
	return c.publishedOutcome(ctx, k)
}

// publishedOutcome is the outcome as the PodSnapshot has it.
func (c *Cluster) publishedOutcome(ctx context.Context, k snapshot.Key) (outcome, string) {
	s, err := c.podSnapshot(ctx, k)
	switch {
	case err != nil:
		return underWay, ""
	case s == nil:
		if e, _ := c.ledger.get(k); e.Published != "" {
			return underWay, "" // it was deleted, or is not in the cache yet: whoever keeps it finds out
		}
		return unknown, ""
	}
	switch cond := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint); {
	case cond != nil && cond.Status == metav1.ConditionTrue:
		return safe, ""
	case cond != nil && cond.Reason == podsnapshotv1.ReasonFailed:
		return failed, cond.Message
	}
	return underWay, ""
}
