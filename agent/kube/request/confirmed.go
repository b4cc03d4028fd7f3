package request

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// What is said to be done is confirmed first. Other nodes restore only PodSnapshots that the controller has confirmed,
// and it confirms only those of pods that it has seen. A client that waits for the answer keeps the pod until then, so
// the controller sees it. The controller usually decides while the pod is being captured: nobody waits.

// confirmations wait until the controller has confirmed this node's PodSnapshots.
type confirmations struct {
	objects *objects.Objects
	records *record.Records
}

// await waits until a PodSnapshot is confirmed. If it never will be, the error is of kind errkind.ErrNotConfirmed.
func (c *confirmations) await(ctx context.Context, ref snapshot.PodRef, k snapshot.Key) error {
	pod, err := c.objects.PodOf(ctx, ref)
	if err != nil {
		return fmt.Errorf("PodSnapshot %s: %w: %w", k, errkind.ErrNotConfirmed, err)
	}
	if pod == nil {
		return nil
	}
	say := time.AfterFunc(rules.SayTime, func() {
		c.objects.Events.Pod(ref, k, notice.AwaitsConfirmation, k)
	})
	defer say.Stop()
	for {
		news := c.objects.News.Listen()
		if yes, err := c.confirmed(ctx, k); yes || err != nil {
			return err
		}
		select {
		case <-news:
		case <-time.After(objects.LookAgain):
		case <-ctx.Done():
			return fmt.Errorf("PodSnapshot %s: %w: the controller has not looked at it, see whether it runs and the API "+
				"server answers: %w", k, errkind.ErrNotConfirmed, context.Cause(ctx))
		}
	}
}

// confirmed reports whether a PodSnapshot is confirmed. If it never will be, the error is of kind
// errkind.ErrNotConfirmed.
func (c *confirmations) confirmed(ctx context.Context, k snapshot.Key) (bool, error) {
	e, _ := c.records.Ledger.Get(k)
	if e.Deleted {
		return false, fmt.Errorf("PodSnapshot %s: %w: it was deleted", k, errkind.ErrNotConfirmed)
	}
	s, err := c.objects.PodSnapshot(ctx, k)
	if err != nil || s == nil {
		return false, nil // there is none yet, or it is read again
	}
	if another, err := c.ofAnother(ctx, s, e); another || err != nil {
		return false, err
	}
	if why := rules.NotConfirmed(s); why != "" {
		return false, fmt.Errorf("PodSnapshot %s: %w: %s", k, errkind.ErrNotConfirmed, why)
	}
	return rules.Confirmed(s), nil
}

// ofAnother reports whether a PodSnapshot is not that of the snapshot that is being made, but of an earlier one of its
// name. The cache may have it although it is gone. If it is still there, the error is of kind errkind.ErrNotConfirmed.
func (c *confirmations) ofAnother(ctx context.Context, s *podsnapshotv1.PodSnapshot, e record.Entry) (bool, error) {
	k := objects.KeyOf(s)
	q, _ := c.records.Reported.Get(k)
	uid := cmp.Or(q.SnapshotUID, e.UID)
	if uid == "" || uid == s.Annotations[podsnapshotv1.AnnotationSnapshotUID] {
		return false, nil
	}
	now := new(podsnapshotv1.PodSnapshot)
	if c.objects.Live.Get(ctx, objects.Named(k), now) != nil ||
		now.Annotations[podsnapshotv1.AnnotationSnapshotUID] == uid {
		return true, nil // it is looked at again
	}
	return true, fmt.Errorf("PodSnapshot %s: %w: it is that of another snapshot: delete it, or choose another name", k,
		errkind.ErrNotConfirmed)
}

// unconfirmed returns why a snapshot that was captured is not confirmed, in lost if it will not be, or else in waits.
// Both are empty if it is confirmed.
func unconfirmed(k snapshot.Key, s *podsnapshotv1.PodSnapshot) (waits, lost string) {
	switch why := rules.NotConfirmed(s); {
	case !rules.Captured(s) || rules.Ready(s):
		return "", ""
	case why != "":
		return "", fmt.Sprintf("PodSnapshot %s was made, but can be restored only on node %s: %s", k,
			s.Annotations[podsnapshotv1.AnnotationOriginNode], why)
	case !rules.Decided(s):
		return fmt.Sprintf("PodSnapshot %s: %s", k, notice.AwaitsController), ""
	}
	return "", ""
}
