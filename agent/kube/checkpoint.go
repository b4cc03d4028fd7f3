package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// begin accepts an order and starts its checkpoint in a goroutine that Run waits for. If the order cannot be added,
// it does nothing: see orders.add.
func (c *Cluster) begin(o *order) {
	if c.orders.add(o) {
		c.work.Go(func() { c.checkpoint(o) })
	}
}

// beginTime bounds how long an order waits until its pod is being saved, because the pod may still be loading its
// memory. It is shorter than the 180 s for which the Agent Sandbox SDK waits. So the SDK hears why, and no pod is
// saved or stopped for a client that no longer waits.
const beginTime = 150 * time.Second

// errNotBegun means that beginTime is over.
var errNotBegun = fmt.Errorf("not begun within %v", beginTime)

// tellLoading returns a function that makes one event on a pod, to say that its checkpoint waits until its memory is
// loaded.
func (c *Cluster) tellLoading(o *order) func(stage string, done, total int64) {
	var once sync.Once
	return func(stage string, done, total int64) {
		if stage != "load" || total == 0 {
			return
		}
		once.Do(func() {
			c.event(o.pod, o.asker.about(), corev1.EventTypeNormal, actionCheckpoint, fmt.Sprintf(
				"Still loading: the pod is checkpointed once it has all its memory, %d of %d MiB so far", done>>20, total>>20))
		})
	}
}

// checkpoint carries an order out, and requeues everything that waits for its outcome.
func (c *Cluster) checkpoint(o *order) {
	log := c.log.With("pod", o.pod.String())
	ctx, cancel := context.WithTimeoutCause(c.life, beginTime, errNotBegun)
	defer cancel()
	_, err := c.node.Checkpoint(ctx, c.life, checkpoint.Options{
		Target: o.pod.UID, Named: func() (string, error) { return c.name(o) }, Stop: o.plan.Stop, Completed: o.plan.Stop,
		Progress: c.tellLoading(o),
		Spooled:  func(f *snapshots.Found) { c.captured(f.Manifest.Meta.Key) },
	})
	if errors.Is(err, errkind.ErrNotReplicated) || errors.Is(err, errkind.ErrNeverReplicated) {
		log.Warn("the snapshot is on this node only", "error", err)
		err = nil
	} else if err != nil {
		log.Error("checkpoint failed", "error", err)
	}
	if k := c.orders.end(o, err); k.Name != "" {
		c.progressed(k)
	}
	o.requester.kick(c)
	c.nextTurn(o.pod)
}

// captured requeues everything that waits for the snapshot or its pod.
func (c *Cluster) captured(k snapshot.Key) {
	if o := c.orders.captured(k); o != nil {
		c.progressed(k)
		c.nextTurn(o.pod)
	}
}

// progressed requeues everything that waits for a snapshot: first its PodSnapshot, then the object that asked for it.
func (c *Cluster) progressed(k snapshot.Key) {
	c.snapshots.kick(named(k))
	if o, ok := c.orders.state(k); ok {
		o.requester.kick(c)
	}
}

// outcome is how far a checkpoint has come.
type outcome int

const (
	unknown  outcome = iota // nothing is known of it
	underWay                // a request works on it
	safe                    // there is a snapshot
	failed                  // there will be none
	runsOn                  // there is a snapshot, but the pod was not stopped
)

// outcome returns how far an asker's checkpoint has come and, if it failed, why. K is the snapshot's key, or zero.
func (c *Cluster) outcome(ctx context.Context, a asker, k snapshot.Key) (outcome, string) {
	e, entered := c.ledger.get(k)
	if entered && e.Deleted {
		return failed, fmt.Sprintf("PodSnapshot %s was deleted while it was being made", k)
	}
	o, ordered := c.orders.of(a)
	q, known := c.requests.get(k)
	switch {
	case cmp.Or(e.RunsOn, q.RunsOn) != "":
		return runsOn, cmp.Or(e.RunsOn, q.RunsOn)
	case known && stopping(q):
		return underWay, ""
	case ordered && o.spooled, known && spooled(q):
		return safe, ""
	case known && q.Stage == journal.StageFailed:
		switch local, err := c.node.HasLocal(ctx, k); {
		case err != nil:
			return underWay, ""
		case local: // it only failed to get into the store
			return safe, ""
		}
		return failed, q.Error
	case ordered && o.ended:
		return failed, o.err.Error()
	case ordered, known:
		return underWay, ""
	case k.Name == "":
		return unknown, ""
	}
	return c.publishedOutcome(ctx, k)
}

// publishedOutcome returns the outcome according to the PodSnapshot.
func (c *Cluster) publishedOutcome(ctx context.Context, k snapshot.Key) (outcome, string) {
	s, err := c.podSnapshot(ctx, k)
	switch {
	case err != nil:
		return underWay, ""
	case s == nil:
		if e, _ := c.ledger.get(k); e.Published != "" {
			return underWay, "" // the PodSnapshot was deleted, or is not in the cache yet: serveSnapshot finds out
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
