package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rollback"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// serveSnapshot reconciles a PodSnapshot with what this node's agent knows about it.
func (rs *Requests) serveSnapshot(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	k := snapshot.Key{Namespace: r.Namespace, Name: r.Name}
	if err := rs.forgetCopy(ctx, k); err != nil {
		return reconcile.Result{}, err
	}
	s, err := rs.Objects.PodSnapshot(ctx, k)
	if err != nil {
		return reconcile.Result{}, err
	}
	e, _ := rs.ledger.get(k)
	switch {
	case e.Deleted:
		return reconcile.Result{}, rs.forget(ctx, k)
	case s == nil && e.Published != "":
		again, err := rs.serveDeleted(ctx, e)
		if errors.Is(err, rollback.ErrRolledBack) {
			again, err = wait.Jitter(rolledBackPause, 0.2), nil
		}
		return reconcile.Result{RequeueAfter: again}, err
	case s == nil:
		if s, err = rs.publishIfDue(ctx, k, e); errors.Is(err, errEarly) {
			return reconcile.Result{RequeueAfter: control.ConflictPause}, nil
		} else if err != nil || s == nil {
			return reconcile.Result{}, err
		}
	case s.DeletionTimestamp != nil:
		return reconcile.Result{}, rs.serveDeletion(ctx, s)
	}
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != rs.NodeName {
		return reconcile.Result{}, nil
	}
	again, err := rs.progress(ctx, s)
	if err == nil {
		err = rs.showAsleep(ctx, s)
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// rolledBackPause is how often a snapshot is looked at again that the cluster may have lost.
const rolledBackPause = 5 * time.Minute

// publishIfDue creates the PodSnapshot for a request of this node, if there must be one and it is its turn.
func (rs *Requests) publishIfDue(ctx context.Context, k snapshot.Key, e entry) (*podsnapshotv1.PodSnapshot, error) {
	q, known := rs.reported.get(k)
	if !known {
		return nil, nil
	}
	if rs.early(q) {
		return nil, errEarly
	}
	if q.Stage == journal.StageFailed || spooled(q) {
		there, err := rs.stored(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", k, err)
		}
		if !there {
			return nil, rs.unpublished(ctx, q, e)
		}
	}
	return rs.publish(ctx, q, e)
}

// stored reports whether there is a snapshot of a request that has ended or is spooled.
func (rs *Requests) stored(ctx context.Context, q journal.Request) (bool, error) {
	if q.Stage != journal.StageReplicated {
		if local, err := rs.Node.HasLocal(ctx, q.Key); err != nil || local || q.Stage == journal.StageFailed {
			return local, err
		}
	}
	_, err := rs.Node.StoredManifest(ctx, q.Key, q.Store) // a replicated snapshot may have been swept meanwhile
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// unpublished forgets a request without anything to publish, once the object that asked has its answer.
func (rs *Requests) unpublished(ctx context.Context, q journal.Request, e entry) error {
	if d, open := rs.requesterOf(ctx, e); open {
		d.kick(rs)
		return nil
	}
	rs.reported.drop(q)
	return rs.ledger.drop(q.Key)
}

// requesterOf returns the object that asked for a snapshot, and whether it still waits for an answer.
func (rs *Requests) requesterOf(ctx context.Context, e entry) (d requester, open bool) {
	d = requester{in: e.Key.Namespace, trigger: e.Trigger}
	if e.Trigger != "" {
		t := new(podsnapshotv1.PodSnapshotManualTrigger)
		err := rs.Objects.Get(ctx, client.ObjectKey{Namespace: e.Key.Namespace, Name: e.Trigger}, t)
		return d, err == nil && triggerAsker(t).made(e.Key) && !rules.Ended(t)
	}
	d.pod = e.Pod.Name
	pod, err := rs.Objects.PodHere(ctx, client.ObjectKey{Namespace: e.Key.Namespace, Name: e.Pod.Name})
	if err != nil || pod == nil {
		return d, false
	}
	id := pod.Annotations[podsnapshotv1.AnnotationCheckpoint]
	s := ParseStatus(pod)
	return d, annotationAsker(pod.Namespace, pod.UID, id).made(e.Key) && (s.ID != id || s.State == StateCheckpointing)
}

// errNamespaceGone means that a snapshot's namespace was deleted. Another one may have its name by now.
var errNamespaceGone = errors.New("the snapshot's namespace was deleted")

// home returns an error of kind errNamespaceGone if the namespace that a snapshot was made in is gone, even if another
// one has its name.
func (rs *Requests) home(ctx context.Context, q journal.Request) error {
	if q.NamespaceUID == "" {
		return nil
	}
	uid, err := rs.Objects.NamespaceUID(ctx, q.Key.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return errNamespaceGone
	case err == nil && uid != q.NamespaceUID:
		return fmt.Errorf("%w: its UID was %.80q, that of the namespace that has its name is %s", errNamespaceGone,
			q.NamespaceUID, uid)
	}
	return err
}

// publish creates a request's PodSnapshot. It returns nil if its namespace is gone or being deleted.
func (rs *Requests) publish(ctx context.Context, q journal.Request, e entry) (*podsnapshotv1.PodSnapshot, error) {
	if err := rs.home(ctx, q); errors.Is(err, errNamespaceGone) {
		rs.log.Warn("no PodSnapshot", "snapshot", q.Key.String(), "error", err)
		return nil, rs.unpublished(ctx, q, e) // a sweep removes what the store has
	} else if err != nil {
		return nil, err
	}
	if e.Plan == nil {
		plan, err := rs.planOf(ctx, q)
		if err != nil {
			return nil, err
		}
		e.Plan = plan
	}
	s, err := rs.newSnapshot(ctx, q, e)
	if err != nil {
		return nil, err
	}
	err = rs.Objects.Create(ctx, s)
	switch {
	case apierrors.IsAlreadyExists(err): // the cache did not have it yet
		if err := rs.Objects.Live.Get(ctx, objects.Named(q.Key), s); err != nil {
			return nil, fmt.Errorf("read PodSnapshot %s: %w", q.Key, err)
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		rs.log.Warn("no PodSnapshot, its namespace is gone", "snapshot", q.Key.String())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("create PodSnapshot %s: %w", q.Key, err)
	}
	rs.seen(s)
	rs.Objects.Wrote(s)
	e.Key, e.UID, e.Pod, e.Published = q.Key, q.SnapshotUID, q.Pod, string(s.UID)
	return s, rs.ledger.put(e)
}

// newSnapshot returns a request's PodSnapshot, for publish to create.
func (rs *Requests) newSnapshot(ctx context.Context, q journal.Request, e entry) (*podsnapshotv1.PodSnapshot, error) {
	plan := e.Plan
	facts, err := rs.Node.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("facts of this node: %w", err)
	}
	annotations := map[string]string{
		podsnapshotv1.AnnotationOriginPod:      q.Pod.Name,
		podsnapshotv1.AnnotationOriginPodUID:   q.Pod.UID,
		podsnapshotv1.AnnotationOriginNode:     rs.NodeName,
		podsnapshotv1.AnnotationSnapshotUID:    q.SnapshotUID,
		podsnapshotv1.AnnotationScope:          string(q.Scope),
		podsnapshotv1.AnnotationPurpose:        q.Purpose.String(),
		podsnapshotv1.AnnotationSpecHash:       plan.SpecHash,
		podsnapshotv1.AnnotationDistilledSpec:  plan.Spec,
		podsnapshotv1.AnnotationServiceAccount: plan.ServiceAccount,
		podsnapshotv1.AnnotationStorageConfig:  plan.StorageConfig,
		podsnapshotv1.AnnotationRunscVersion:   facts.RunscVersion,
		podsnapshotv1.AnnotationArchitecture:   facts.Architecture,
		podsnapshotv1.AnnotationTrigger:        e.Trigger,
	}
	maps.DeleteFunc(annotations, func(_, v string) bool { return v == "" })
	s := &podsnapshotv1.PodSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: q.Key.Namespace, Name: q.Key.Name, Labels: plan.Group, Annotations: annotations,
			Finalizers: []string{podsnapshotv1.Finalizer},
		},
		Spec: podsnapshotv1.PodSnapshotSpec{PolicyName: plan.Policy},
	}
	if q.Purpose == snapshot.ForSleep {
		s.Labels = nil
		if q.Inheritable {
			rules.SetInheritable(s, plan.Group)
		}
	}
	return s, nil
}

// planOf returns the plan of a snapshot that was requested through the node's local socket. It derives the plan from
// the pod or, if that is gone, from the manifest.
func (rs *Requests) planOf(ctx context.Context, q journal.Request) (*rules.Plan, error) {
	pod, err := rs.Objects.PodHere(ctx, client.ObjectKey{Namespace: q.Pod.Namespace, Name: q.Pod.Name})
	if err != nil {
		return nil, err
	}
	if pod != nil && string(pod.UID) == q.Pod.UID {
		return rs.prepareLocal(ctx, pod)
	}
	m, err := rs.Node.Manifest(ctx, q.Key, q.Store)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", q.Key, err)
	}
	o := m.Meta.Origin
	return &rules.Plan{
		Policy: podsnapshotv1.NoPolicy, Store: q.Store, ServiceAccount: o.ServiceAccount, SpecHash: o.SpecHash,
		Group: o.Group,
	}, nil
}

func (rs *Requests) prepareLocal(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	policies, find, err := rs.Objects.Rules(ctx, pod.Namespace, rs.Objects.List)
	if err != nil {
		return nil, err
	}
	return rules.PrepareLocal(pod, policies, find), nil
}

// progress writes the progress of one of this node's PodSnapshots into its status. It returns when to look again, or 0.
func (rs *Requests) progress(ctx context.Context, s *podsnapshotv1.PodSnapshot) (again time.Duration, err error) {
	captured, ready := rules.Captured(s), rules.Ready(s)
	bad := rules.Lost(s) || rules.NotInStore(s) != "" || rules.Doubted(s)
	q, known := rs.requestOf(s) // once: an older copy does not have all that release must keep
	if known || !rs.settled(s) {
		p, err := rs.progressOf(ctx, s, q, known)
		if err != nil {
			return 0, err
		}
		if err := rs.writeProgress(ctx, s, p); err != nil {
			return 0, err
		}
		if !bad {
			rs.tellBad(s)
		}
		if known && (p.Replicated || p.Failed != "" || p.NotInStore != "") {
			if err := rs.release(q); err != nil {
				return 0, err
			}
		}
	}
	again = rs.announce(ctx, s, ready)
	if !captured && rules.Captured(s) {
		err = rs.correct(ctx, s, q.Store)
	}
	return again, err
}

// announce requeues the object that asked for a snapshot if it is to hear of it, and makes an event on the pod if the
// snapshot is Ready and was not before. If it is too early to say that the snapshot waits for its confirmation,
// announce returns how long it is until then.
func (rs *Requests) announce(ctx context.Context, s *podsnapshotv1.PodSnapshot, before bool) (again time.Duration) {
	k, ready := objects.KeyOf(s), rules.Ready(s)
	waits, lost := unconfirmed(k, s)
	if waits != "" {
		again = rules.Silence(s, time.Now())
	}
	if again > 0 || waits == "" && lost == "" && !ready && !rules.Lost(s) {
		return again
	}
	e, _ := rs.ledger.get(k)
	if d, open := rs.requesterOf(ctx, e); open {
		d.kick(rs)
	}
	if ready && !before {
		rs.Objects.Event(e.Pod, k, corev1.EventTypeNormal, objects.ActionCheckpoint,
			fmt.Sprintf("Successfully checkpointed the pod to PodSnapshot %s", k))
		if warning := rules.Warning(s); warning != "" {
			rs.Objects.Event(e.Pod, k, corev1.EventTypeWarning, objects.ActionCheckpoint,
				fmt.Sprintf("PodSnapshot %s was made, but %s", k, warning))
		}
	}
	return 0
}

// requestOf returns the request that made a PodSnapshot's snapshot. There may be another request with the same name,
// which failed because the name was taken, or before that was found out. It says nothing about this PodSnapshot.
func (rs *Requests) requestOf(s *podsnapshotv1.PodSnapshot) (journal.Request, bool) {
	q, known := rs.reported.get(objects.KeyOf(s))
	if !known || q.SnapshotUID != s.Annotations[podsnapshotv1.AnnotationSnapshotUID] {
		return journal.Request{}, false
	}
	return q, true
}

// settled reports whether a PodSnapshot's status is final, as far as its node is concerned.
func (rs *Requests) settled(s *podsnapshotv1.PodSnapshot) bool {
	stored := rules.NodeLocal(s) || rules.Replicated(s) && !rs.Node.OwnDisk(rules.StoredAt(s))
	return rules.Lost(s) || rules.Ready(s) && stored
}

// tellBad makes an event on the pod if its snapshot was lost, cannot get into the store or is not confirmed, after it
// was captured.
func (rs *Requests) tellBad(s *podsnapshotv1.PodSnapshot) {
	e, _ := rs.ledger.get(objects.KeyOf(s))
	why := rules.NotInStore(s)
	if rules.Doubted(s) {
		why = cmp.Or(why, rules.NotConfirmed(s))
	}
	switch {
	case rules.Lost(s) && meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint):
		rs.Objects.Event(e.Pod, objects.KeyOf(s), corev1.EventTypeWarning, objects.ActionCheckpoint,
			fmt.Sprintf("PodSnapshot %s is lost: %s", objects.KeyOf(s), rules.WhyNotReady(s)))
	case !rules.Lost(s) && why != "":
		rs.Objects.Event(e.Pod, objects.KeyOf(s), corev1.EventTypeWarning, objects.ActionCheckpoint,
			fmt.Sprintf("PodSnapshot %s can be restored only on node %s: %s", objects.KeyOf(s), rs.NodeName, why))
	}
}

// release forgets a request that needs no further report. What its asker must still hear goes into the ledger.
func (rs *Requests) release(q journal.Request) error {
	if e, ok := rs.ledger.get(q.Key); ok && q.RunsOn != "" {
		e.RunsOn = q.RunsOn
		if err := rs.ledger.put(e); err != nil {
			return err
		}
	}
	rs.reported.drop(q)
	return nil
}

// correct writes the runsc version and the architecture from the manifest. If runsc was replaced meanwhile, they
// differ from the node's.
func (rs *Requests) correct(ctx context.Context, s *podsnapshotv1.PodSnapshot, location string) error {
	m, err := rs.Node.Manifest(ctx, objects.KeyOf(s), location)
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
	if err := rs.Objects.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		rs.Objects.Unsure(objects.KeyOf(s))
		return fmt.Errorf("annotations of PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	rs.Objects.Wrote(s)
	return nil
}

func (rs *Requests) writeProgress(ctx context.Context, s *podsnapshotv1.PodSnapshot, p rules.Progress) error {
	return rs.writeStatus(ctx, s, func(s *podsnapshotv1.PodSnapshot) bool { return rules.SetProgress(s, p) })
}

// writeStatus makes a change of the status of one of this node's PodSnapshots. Change reports whether it is one.
func (rs *Requests) writeStatus(ctx context.Context, s *podsnapshotv1.PodSnapshot,
	change func(*podsnapshotv1.PodSnapshot) bool,
) error {
	before := s.DeepCopy()
	if !change(s) {
		return nil
	}
	if err := rs.Objects.Status().Patch(ctx, s, client.MergeFrom(before)); err != nil {
		rs.Objects.Unsure(objects.KeyOf(s))
		return fmt.Errorf("status of PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	rs.Objects.Wrote(s)
	return nil
}

// progressOf returns the progress of the checkpoint behind one of this node's PodSnapshots. Q is its request, if known.
func (rs *Requests) progressOf(ctx context.Context, s *podsnapshotv1.PodSnapshot, q journal.Request, known bool,
) (rules.Progress, error) {
	k, p := objects.KeyOf(s), rules.Progress{OriginNode: rs.NodeName, Warning: q.Warning}
	o, working := rs.jobs.state(k)
	p.StoredAt = cmp.Or(q.Store, rules.StoredAt(s), rs.Store)
	p.OwnDisk = rs.Node.OwnDisk(p.StoredAt)
	switch {
	case !known && rules.StoredAt(s) != "":
		p.Spooled, p.Replicated = true, true
		return p, nil
	case known && q.Stage == journal.StageReplicated:
		p.Spooled, p.Replicated = true, true
		return p, nil
	case known && q.Stage != journal.StageFailed, working && !known && !o.ended:
		p.Spooled = known && spooled(q) || working && o.spooled
		p.Waiting = q.Waiting
		return p, nil
	}
	local, err := rs.Node.HasLocal(ctx, k)
	if err != nil {
		return p, fmt.Errorf("look for %s: %w", k, err)
	}
	switch {
	case local:
		p.Spooled, p.NotInStore = true, q.Error
	case known:
		p.Failed = q.Error
	case working && o.err != nil:
		p.Failed = o.err.Error()
	default:
		p.Failed = fmt.Sprintf("node %s no longer has this snapshot", rs.NodeName)
	}
	return p, nil
}
