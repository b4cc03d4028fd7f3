package request

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// reporter writes what this node's agent knows of its PodSnapshots into their statuses.
type reporter struct {
	objects  *objects.Objects
	node     reporting
	nodeName string
	store    string // location of the agent's own store
	records  *record.Records
	waiters  *waiters
}

// reporting is what a reporter needs of the agent.
type reporting interface {
	reader
	HasLocal(ctx context.Context, key snapshot.Key) (bool, error)
	// OwnDisk reports whether the store at location is visible to this node only.
	OwnDisk(location string) bool
}

// report writes the progress of one of this node's PodSnapshots into its status. It returns when to look again, or 0.
func (r *reporter) report(ctx context.Context, s *podsnapshotv1.PodSnapshot) (again time.Duration, err error) {
	captured, ready := rules.Captured(s), rules.Ready(s)
	bad := rules.Lost(s) || rules.NotInStore(s) != "" || rules.Doubted(s)
	q, known := r.requestOf(s) // once: an older copy does not have all that release must keep
	if known || !r.settled(s) {
		p, err := r.progressOf(ctx, s, q, known)
		if err != nil {
			return 0, err
		}
		set := func(s *podsnapshotv1.PodSnapshot) bool { return rules.SetProgress(s, p) }
		if err := r.objects.WriteStatus(ctx, s, set); err != nil {
			return 0, err
		}
		if !bad {
			r.tellBad(s)
		}
		if known && (p.Replicated || p.Failed != "" || p.NotInStore != "") {
			if err := r.release(q); err != nil {
				return 0, err
			}
		}
	}
	again = r.announce(ctx, s, ready)
	if !captured && rules.Captured(s) {
		err = r.correct(ctx, s, q.Store)
	}
	return again, err
}

// announce requeues the object that asked for a snapshot if it is to hear of it, and makes an event on the pod if the
// snapshot is Ready and was not before. If it is too early to say that the snapshot waits for its confirmation,
// announce returns how long it is until then.
func (r *reporter) announce(ctx context.Context, s *podsnapshotv1.PodSnapshot, before bool) (again time.Duration) {
	k, ready := objects.KeyOf(s), rules.Ready(s)
	waits, lost := unconfirmed(k, s)
	if waits != "" {
		again = rules.Silence(s, time.Now())
	}
	if again > 0 || waits == "" && lost == "" && !ready && !rules.Lost(s) {
		return again
	}
	e, _ := r.records.Ledger.Get(k)
	if d, open := r.waiters.requesterOf(ctx, e); open {
		r.waiters.kick(d)
	}
	if ready && !before {
		r.objects.Events.Pod(e.Pod, k, notice.Checkpointed, k)
		if warning := rules.Warning(s); warning != "" {
			r.objects.Events.Pod(e.Pod, k, notice.MadeBut, k, warning)
		}
	}
	return 0
}

// requestOf returns the request that made a PodSnapshot's snapshot. There may be another request with the same name,
// which failed because the name was taken, or before that was found out. It says nothing about this PodSnapshot.
func (r *reporter) requestOf(s *podsnapshotv1.PodSnapshot) (journal.Request, bool) {
	q, known := r.records.Reported.Get(objects.KeyOf(s))
	if !known || q.SnapshotUID != s.Annotations[podsnapshotv1.AnnotationSnapshotUID] {
		return journal.Request{}, false
	}
	return q, true
}

// settled reports whether a PodSnapshot's status is final, as far as its node is concerned.
func (r *reporter) settled(s *podsnapshotv1.PodSnapshot) bool {
	stored := rules.NodeLocal(s) || rules.Replicated(s) && !r.node.OwnDisk(rules.StoredAt(s))
	return rules.Lost(s) || rules.Ready(s) && stored
}

// tellBad makes an event on the pod if its snapshot was lost, cannot get into the store or is not confirmed, after it
// was captured.
func (r *reporter) tellBad(s *podsnapshotv1.PodSnapshot) {
	k := objects.KeyOf(s)
	e, _ := r.records.Ledger.Get(k)
	why := rules.NotInStore(s)
	if rules.Doubted(s) {
		why = cmp.Or(why, rules.NotConfirmed(s))
	}
	switch {
	case rules.Lost(s) && meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint):
		r.objects.Events.Pod(e.Pod, k, notice.SnapshotLost, k, rules.WhyNotReady(s))
	case !rules.Lost(s) && why != "":
		r.objects.Events.Pod(e.Pod, k, notice.OnlyOnNode, k, r.nodeName, why)
	}
}

// release forgets a request that needs no further report. What its asker must still hear goes into the ledger.
func (r *reporter) release(q journal.Request) error {
	if e, ok := r.records.Ledger.Get(q.Key); ok && q.RunsOn != "" {
		e.RunsOn = q.RunsOn
		if err := r.records.Ledger.Put(e); err != nil {
			return err
		}
	}
	r.records.Reported.Drop(q)
	return nil
}

// correct writes the runsc version and the architecture from the manifest. If runsc was replaced meanwhile, they
// differ from the node's.
func (r *reporter) correct(ctx context.Context, s *podsnapshotv1.PodSnapshot, location string) error {
	m, err := r.node.Manifest(ctx, objects.KeyOf(s), location)
	if err != nil {
		return fmt.Errorf("manifest of %s: %w", objects.KeyOf(s), err)
	}
	before, facts := s.DeepCopy(), m.Meta.Facts
	if s.Annotations[podsnapshotv1.AnnotationRunscVersion] == facts.RunscVersion &&
		s.Annotations[podsnapshotv1.AnnotationArchitecture] == facts.Architecture {
		return nil
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, podsnapshotv1.AnnotationRunscVersion, facts.RunscVersion)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, podsnapshotv1.AnnotationArchitecture, facts.Architecture)
	if err := r.objects.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		r.objects.Unsure(objects.KeyOf(s))
		return fmt.Errorf("annotations of PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	r.objects.Wrote(s)
	return nil
}

// progressOf returns the progress of the checkpoint behind one of this node's PodSnapshots. Q is its request, if known.
func (r *reporter) progressOf(ctx context.Context, s *podsnapshotv1.PodSnapshot, q journal.Request, known bool,
) (rules.Progress, error) {
	k, p := objects.KeyOf(s), rules.Progress{OriginNode: r.nodeName, Warning: q.Warning}
	o, working := r.records.Jobs.State(k)
	p.StoredAt = cmp.Or(q.Store, rules.StoredAt(s), r.store)
	p.OwnDisk = r.node.OwnDisk(p.StoredAt)
	switch {
	case !known && rules.StoredAt(s) != "":
		p.Spooled, p.Replicated = true, true
		return p, nil
	case known && q.Stage == journal.StageReplicated:
		p.Spooled, p.Replicated = true, true
		return p, nil
	case known && q.Stage != journal.StageFailed, working && !known && !o.Ended:
		p.Spooled = known && record.Spooled(q) || working && o.Spooled
		p.Waiting = q.Waiting
		return p, nil
	}
	local, err := r.node.HasLocal(ctx, k)
	if err != nil {
		return p, fmt.Errorf("look for %s: %w", k, err)
	}
	switch {
	case local:
		p.Spooled, p.NotInStore = true, q.Error
	case known:
		p.Failed = q.Error
	case working && o.Err != nil:
		p.Failed = o.Err.Error()
	default:
		p.Failed = fmt.Sprintf("node %s no longer has this snapshot", r.nodeName)
	}
	return p, nil
}
