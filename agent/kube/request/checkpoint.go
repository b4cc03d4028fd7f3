package request

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
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// begin accepts a job and starts its checkpoint in a goroutine that Run waits for. If the job cannot be added,
// it does nothing: see jobs.add.
func (rs *Requests) begin(j *job) {
	if rs.jobs.add(j) {
		rs.work.Go(func() { rs.checkpoint(j) })
	}
}

// beginTime bounds how long a job waits until its pod is being saved, because the pod may still be loading its
// memory. It is shorter than the 180 s for which the Agent Sandbox SDK waits. So the SDK hears why, and no pod is
// saved or stopped for a client that no longer waits.
const beginTime = 150 * time.Second

// errNotBegun means that beginTime is over.
var errNotBegun = fmt.Errorf("not begun within %v", beginTime)

// tellWaiting returns a function that makes one event on a pod for each thing that its checkpoint waits for before the
// pause: until the pod's memory is loaded, and until the agent has memory for the checkpoint.
func (rs *Requests) tellWaiting(j *job) func(stage string, done, total int64) {
	var loads, memory sync.Once
	tell := func(format string, args ...any) {
		rs.Objects.Event(j.pod, j.asker.about(), corev1.EventTypeNormal, objects.ActionCheckpoint,
			fmt.Sprintf(format, args...))
	}
	return func(stage string, done, total int64) {
		switch {
		case total == 0:
		case stage == "load":
			loads.Do(func() {
				tell("Still loading: the pod is checkpointed once it has all its memory, %d of %d MiB so far", done>>20, total>>20)
			})
		case stage == "memory":
			memory.Do(func() {
				tell("Waiting: the pod is checkpointed once other checkpoints on its node have left %d MiB of the memory for "+
					"checkpoints", total>>20)
			})
		}
	}
}

// checkpoint carries a job out, and requeues everything that waits for its outcome.
func (rs *Requests) checkpoint(j *job) {
	log := rs.log.With("pod", j.pod.String())
	ctx, cancel := context.WithTimeoutCause(rs.life, beginTime, errNotBegun)
	defer cancel()
	_, err := rs.Node.Checkpoint(ctx, rs.life, checkpoint.Options{
		Target: j.pod.UID, Named: func() (string, error) { return rs.name(j) }, Stop: j.plan.Stop, Completed: j.plan.Stop,
		Progress: rs.tellWaiting(j),
		Spooled:  func(f *snapshots.Found, _ string) { rs.captured(f.Manifest.Meta.Key) },
	})
	if errors.Is(err, errkind.ErrNotReplicated) || errors.Is(err, errkind.ErrNeverReplicated) {
		log.Warn("the snapshot is on this node only", "error", err)
		err = nil
	} else if err != nil {
		log.Error("checkpoint failed", "error", err)
	}
	if k := rs.jobs.end(j, err); k.Name != "" {
		rs.progressed(k)
	}
	j.requester.kick(rs)
	rs.nextTurn(j.pod)
}

// captured requeues everything that waits for the snapshot or its pod.
func (rs *Requests) captured(k snapshot.Key) {
	if j := rs.jobs.captured(k); j != nil {
		rs.progressed(k)
		rs.nextTurn(j.pod)
	}
}

// progressed requeues everything that waits for a snapshot: first its PodSnapshot, then the object that asked for it.
func (rs *Requests) progressed(k snapshot.Key) {
	rs.snapshots.Kick(objects.Named(k))
	if j, ok := rs.jobs.state(k); ok {
		j.requester.kick(rs)
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
func (rs *Requests) outcome(ctx context.Context, a asker, k snapshot.Key) (outcome, string) {
	// In the order in which a checkpoint passes through them: what has left one since is in the next.
	j, working := rs.jobs.of(a)
	q, known := rs.reported.get(k)
	e, entered := rs.ledger.get(k)
	switch {
	case entered && e.Deleted:
		return failed, fmt.Sprintf("PodSnapshot %s was deleted while it was being made", k)
	case cmp.Or(e.RunsOn, q.RunsOn) != "":
		return runsOn, cmp.Or(e.RunsOn, q.RunsOn)
	case known && stopping(q):
		return underWay, ""
	case working && j.spooled, known && spooled(q):
		return safe, ""
	case known && q.Stage == journal.StageFailed:
		switch local, err := rs.Node.HasLocal(ctx, k); {
		case err != nil:
			return underWay, ""
		case local: // it only failed to get into the store
			return safe, ""
		}
		return failed, q.Error
	case working && j.ended:
		return failed, j.err.Error()
	case working, known:
		return underWay, ""
	case k.Name == "":
		return unknown, ""
	}
	return rs.publishedOutcome(ctx, k)
}

// publishedOutcome returns the outcome according to the PodSnapshot.
func (rs *Requests) publishedOutcome(ctx context.Context, k snapshot.Key) (outcome, string) {
	s, err := rs.Objects.PodSnapshot(ctx, k)
	switch {
	case err != nil:
		return underWay, ""
	case s == nil:
		if e, _ := rs.ledger.get(k); e.Published != "" {
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
