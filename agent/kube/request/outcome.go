package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// outcome is how far a checkpoint has come.
type outcome int

const (
	unknown  outcome = iota // nothing is known of it
	underWay                // a request works on it
	safe                    // there is a snapshot
	failed                  // there will be none
	runsOn                  // there is a snapshot, but the pod was not stopped
)

// outcomes find out what has become of checkpoints.
type outcomes struct {
	objects *objects.Objects
	node    holder
	records *record.Records
	waiters *waiters
}

// holder tells which snapshots this node and the stores have.
type holder interface {
	// HasLocal reports whether a snapshot can be restored on this node without a store.
	HasLocal(ctx context.Context, key snapshot.Key) (bool, error)
	// StoredManifest returns a snapshot's manifest from the store at location.
	StoredManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
}

// of returns how far an asker's checkpoint has come and, if it failed, why. K is the snapshot's key, or zero.
func (o *outcomes) of(ctx context.Context, a record.Asker, k snapshot.Key) (outcome, string) {
	// In the order in which a checkpoint passes through them: what has left one since is in the next.
	j, working := o.records.Jobs.Of(a)
	q, known := o.records.Reported.Get(k)
	e, entered := o.records.Ledger.Get(k)
	switch {
	case entered && e.Deleted:
		return failed, fmt.Sprintf("PodSnapshot %s was deleted while it was being made", k)
	case cmp.Or(e.RunsOn, q.RunsOn) != "":
		return runsOn, cmp.Or(e.RunsOn, q.RunsOn)
	case known && record.Stopping(q):
		return underWay, ""
	case working && j.Spooled, known && record.Spooled(q):
		return safe, ""
	case known && q.Stage == journal.StageFailed:
		switch local, err := o.node.HasLocal(ctx, k); {
		case err != nil:
			return underWay, ""
		case local: // it only failed to get into the store
			return safe, ""
		}
		return failed, q.Error
	case working && j.Ended:
		return failed, j.Err.Error()
	case working, known:
		return underWay, ""
	case k.Name == "":
		return unknown, ""
	}
	return o.published(ctx, k)
}

// published returns the outcome according to the PodSnapshot.
func (o *outcomes) published(ctx context.Context, k snapshot.Key) (outcome, string) {
	s, err := o.objects.PodSnapshot(ctx, k)
	switch {
	case err != nil:
		return underWay, ""
	case s == nil:
		if e, _ := o.records.Ledger.Get(k); e.Published != "" {
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

// publication is what has become of the PodSnapshot of a successful checkpoint.
type publication struct {
	ready bool
	// warning says what a restore may not notice, once it is ready.
	warning string
	waits   string // what it waits for, if it is time to say so
	lost    string // why it is not Ready and, for the object that asked, never will be
}

// publication returns what has become of the PodSnapshot of a successful checkpoint. If that is nothing yet, it
// requeues the PodSnapshot, which later requeues the object that asked.
func (o *outcomes) publication(ctx context.Context, k snapshot.Key) (publication, error) {
	s, err := o.objects.PodSnapshot(ctx, k)
	switch {
	case err != nil:
	case s != nil && rules.Lost(s):
		return publication{lost: rules.WhyNotReady(s)}, nil
	case s != nil && rules.Ready(s):
		return publication{ready: true, warning: rules.Warning(s)}, nil
	case s != nil:
		waits, lost := unconfirmed(k, s)
		if waits != "" && rules.Silence(s, time.Now()) > 0 {
			return publication{}, nil // announce requeues the request
		}
		if waits != "" || lost != "" {
			return publication{waits: waits, lost: lost}, nil
		}
	default:
		q, known := o.records.Reported.Get(k)
		if !known {
			break
		}
		there, err := stored(ctx, o.node, q)
		if err == nil && !there {
			return publication{lost: fmt.Sprintf("snapshot %s was removed before it became a PodSnapshot", k)}, nil
		}
	}
	o.waiters.snapshots.Kick(objects.Named(k))
	return publication{}, err
}

// stored reports whether there is a snapshot of a request that has ended or is spooled.
func stored(ctx context.Context, node holder, q journal.Request) (bool, error) {
	if q.Stage != journal.StageReplicated {
		if local, err := node.HasLocal(ctx, q.Key); err != nil || local || q.Stage == journal.StageFailed {
			return local, err
		}
	}
	_, err := node.StoredManifest(ctx, q.Key, q.Store) // a replicated snapshot may have been swept meanwhile
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
