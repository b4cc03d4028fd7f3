package kube

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

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
		Spooled: func(*agent.Found) { c.captured(o.key) },
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

// captured has those looked at who wait for a snapshot, or for its pod.
func (c *Cluster) captured(k snapshot.Key) {
	if o := c.orders.captured(k); o != nil {
		c.progressed(k)
		c.nextTurn(o.pod)
	}
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
