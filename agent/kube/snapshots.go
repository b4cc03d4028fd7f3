package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// serveSnapshot reconciles a PodSnapshot with what this node's agent knows about it.
func (c *Cluster) serveSnapshot(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	k := snapshot.Key{Namespace: r.Namespace, Name: r.Name}
	s, err := c.podSnapshot(ctx, k)
	if err != nil {
		return reconcile.Result{}, err
	}
	e, _ := c.ledger.get(k)
	switch {
	case e.Deleted:
		return reconcile.Result{}, c.forget(ctx, k)
	case s == nil && e.Published != "":
		return reconcile.Result{}, c.serveDeleted(ctx, e)
	case s == nil:
		if s, err = c.publishIfDue(ctx, k, e); errors.Is(err, errEarly) {
			return reconcile.Result{RequeueAfter: conflictPause}, nil
		} else if err != nil || s == nil {
			return reconcile.Result{}, err
		}
	case s.DeletionTimestamp != nil:
		return reconcile.Result{}, c.serveDeletion(ctx, s)
	}
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != c.cfg.NodeName {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.progress(ctx, s)
}

// publishIfDue creates the PodSnapshot for a request of this node, if there must be one and it is its turn.
func (c *Cluster) publishIfDue(ctx context.Context, k snapshot.Key, e entry) (*podsnapshotv1.PodSnapshot, error) {
	q, known := c.requests.get(k)
	if !known {
		return nil, nil
	}
	if c.early(q) {
		return nil, errEarly
	}
	if q.Stage == journal.StageFailed || spooled(q) {
		there, err := c.stored(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", k, err)
		}
		if !there {
			return nil, c.unpublished(ctx, q, e)
		}
	}
	return c.publish(ctx, q, e)
}

// stored reports whether there is a snapshot of a request that has ended or is spooled.
func (c *Cluster) stored(ctx context.Context, q journal.Request) (bool, error) {
	if q.Stage != journal.StageReplicated {
		if local, err := c.node.HasLocal(ctx, q.Key); err != nil || local || q.Stage == journal.StageFailed {
			return local, err
		}
	}
	_, err := c.node.StoredManifest(ctx, q.Key, q.Store) // a replicated snapshot may have been swept meanwhile
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// unpublished forgets a request without anything to publish, once the object that asked has its answer.
func (c *Cluster) unpublished(ctx context.Context, q journal.Request, e entry) error {
	if d, open := c.requesterOf(ctx, e); open {
		d.kick(c)
		return nil
	}
	c.requests.drop(q)
	return c.ledger.drop(q.Key)
}

// requesterOf returns the object that asked for a snapshot, and whether it still waits for an answer.
func (c *Cluster) requesterOf(ctx context.Context, e entry) (d requester, open bool) {
	d = requester{in: e.Key.Namespace, trigger: e.Trigger}
	if e.Trigger != "" {
		t := new(podsnapshotv1.PodSnapshotManualTrigger)
		err := c.client.Get(ctx, client.ObjectKey{Namespace: e.Key.Namespace, Name: e.Trigger}, t)
		return d, err == nil && triggerAsker(t).made(e.Key) && !rules.Ended(t)
	}
	d.pod = e.Pod.Name
	pod, err := c.onNode(ctx, client.ObjectKey{Namespace: e.Key.Namespace, Name: e.Pod.Name})
	if err != nil || pod == nil {
		return d, false
	}
	id := pod.Annotations[podsnapshotv1.AnnotationCheckpoint]
	s := ParseStatus(pod)
	return d, annotationAsker(pod.Namespace, pod.UID, id).made(e.Key) && (s.ID != id || s.State == StateCheckpointing)
}

// publish creates a request's PodSnapshot. It returns nil if its namespace is gone or being deleted.
func (c *Cluster) publish(ctx context.Context, q journal.Request, e entry) (*podsnapshotv1.PodSnapshot, error) {
	if e.Plan == nil {
		plan, err := c.planOf(ctx, q)
		if err != nil {
			return nil, err
		}
		e.Plan = plan
	}
	s, err := c.newSnapshot(ctx, q, e)
	if err != nil {
		return nil, err
	}
	err = c.client.Create(ctx, s)
	switch {
	case apierrors.IsAlreadyExists(err): // the cache did not have it yet
		if err := c.live.Get(ctx, named(q.Key), s); err != nil {
			return nil, fmt.Errorf("read PodSnapshot %s: %w", q.Key, err)
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		c.log.Warn("no PodSnapshot, its namespace is gone", "snapshot", q.Key.String())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("create PodSnapshot %s: %w", q.Key, err)
	}
	c.seen(s)
	c.latest.put(s)
	e.Key, e.UID, e.Pod, e.Published = q.Key, q.SnapshotUID, q.Pod, string(s.UID)
	return s, c.ledger.put(e)
}

// newSnapshot returns a request's PodSnapshot, for publish to create.
func (c *Cluster) newSnapshot(ctx context.Context, q journal.Request, e entry) (*podsnapshotv1.PodSnapshot, error) {
	plan := e.Plan
	facts, err := c.node.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("facts of this node: %w", err)
	}
	annotations := map[string]string{
		podsnapshotv1.AnnotationOriginPod:      q.Pod.Name,
		podsnapshotv1.AnnotationOriginNode:     c.cfg.NodeName,
		podsnapshotv1.AnnotationSnapshotUID:    q.SnapshotUID,
		podsnapshotv1.AnnotationScope:          string(q.Scope),
		podsnapshotv1.AnnotationSpecHash:       plan.SpecHash,
		podsnapshotv1.AnnotationDistilledSpec:  plan.Spec,
		podsnapshotv1.AnnotationServiceAccount: plan.ServiceAccount,
		podsnapshotv1.AnnotationStorageConfig:  plan.StorageConfig,
		podsnapshotv1.AnnotationRunscVersion:   facts.RunscVersion,
		podsnapshotv1.AnnotationArchitecture:   facts.Architecture,
		podsnapshotv1.AnnotationTrigger:        e.Trigger,
	}
	maps.DeleteFunc(annotations, func(_, v string) bool { return v == "" })
	return &podsnapshotv1.PodSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: q.Key.Namespace, Name: q.Key.Name, Labels: plan.Group, Annotations: annotations,
			Finalizers: []string{podsnapshotv1.Finalizer},
		},
		Spec: podsnapshotv1.PodSnapshotSpec{PolicyName: plan.Policy},
	}, nil
}

// planOf returns the plan of a snapshot that was requested through the node's local socket. It derives the plan from
// the pod or, if that is gone, from the manifest.
func (c *Cluster) planOf(ctx context.Context, q journal.Request) (*rules.Plan, error) {
	pod, err := c.onNode(ctx, client.ObjectKey{Namespace: q.Pod.Namespace, Name: q.Pod.Name})
	if err != nil {
		return nil, err
	}
	if pod != nil && string(pod.UID) == q.Pod.UID {
		return c.prepareLocal(ctx, pod)
	}
	m, err := c.node.Manifest(ctx, q.Key, q.Store)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", q.Key, err)
	}
	o := m.Meta.Origin
	return &rules.Plan{
		Policy: podsnapshotv1.NoPolicy, Store: q.Store, ServiceAccount: o.ServiceAccount, SpecHash: o.SpecHash,
		Group: o.Group,
	}, nil
}

func (c *Cluster) prepareLocal(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	policies, find, err := c.rulesOf(ctx, pod.Namespace, c.client.List)
	if err != nil {
		return nil, err
	}
	return rules.PrepareLocal(pod, policies, find), nil
}

// progress writes the progress of one of this node's PodSnapshots into its status.
func (c *Cluster) progress(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k, was, bad := keyOf(s), rules.Ready(s), rules.Lost(s) || rules.NotInStore(s) != ""
	q, known := c.requestOf(s)
	if known || !c.settled(s) {
		p, err := c.progressOf(ctx, s)
		if err != nil {
			return err
		}
		if err := c.writeProgress(ctx, s, p); err != nil {
			return err
		}
		if !bad {
			c.tellBad(s)
		}
		if known && (p.Replicated || p.Failed != "" || p.NotInStore != "") {
			if err := c.release(q); err != nil {
				return err
			}
		}
	}
	if !rules.Ready(s) && !rules.Lost(s) {
		return nil
	}
	e, _ := c.ledger.get(k)
	if d, open := c.requesterOf(ctx, e); open {
		d.kick(c)
	}
	if was || !rules.Ready(s) {
		return nil
	}
	c.event(e.Pod, k, corev1.EventTypeNormal, actionCheckpoint,
		fmt.Sprintf("Successfully checkpointed the pod to PodSnapshot %s", k))
	return c.correct(ctx, s, q.Store)
}

// requestOf returns the request that made a PodSnapshot's snapshot. There may be another request with the same name,
// which failed because the name was taken, or before that was found out. It says nothing about this PodSnapshot.
func (c *Cluster) requestOf(s *podsnapshotv1.PodSnapshot) (journal.Request, bool) {
	q, known := c.requests.get(keyOf(s))
	if !known || q.SnapshotUID != s.Annotations[podsnapshotv1.AnnotationSnapshotUID] {
		return journal.Request{}, false
	}
	return q, true
}

// settled reports whether a PodSnapshot's status is final, as far as its node is concerned.
func (c *Cluster) settled(s *podsnapshotv1.PodSnapshot) bool {
	return rules.Lost(s) || rules.NodeLocal(s) || rules.Replicated(s) && !c.node.OwnDisk(rules.StoredAt(s))
}

// tellBad makes an event on the pod if its snapshot was lost, or cannot get into the store, after it was captured.
func (c *Cluster) tellBad(s *podsnapshotv1.PodSnapshot) {
	e, _ := c.ledger.get(keyOf(s))
	switch why := rules.NotInStore(s); {
	case rules.Lost(s) && meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint):
		c.event(e.Pod, keyOf(s), corev1.EventTypeWarning, actionCheckpoint,
			fmt.Sprintf("PodSnapshot %s is lost: %s", keyOf(s), rules.WhyNotReady(s)))
	case !rules.Lost(s) && why != "":
		c.event(e.Pod, keyOf(s), corev1.EventTypeWarning, actionCheckpoint,
			fmt.Sprintf("PodSnapshot %s can be restored only on node %s: %s", keyOf(s), c.cfg.NodeName, why))
	}
}

// release forgets a request that needs no further report. What its asker must still hear goes into the ledger.
func (c *Cluster) release(q journal.Request) error {
	if e, ok := c.ledger.get(q.Key); ok && q.RunsOn != "" {
		e.RunsOn = q.RunsOn
		if err := c.ledger.put(e); err != nil {
			return err
		}
	}
	c.requests.drop(q)
	return nil
}

// correct writes the runsc version and the architecture from the manifest. If runsc was replaced meanwhile, they
// differ from the node's.
func (c *Cluster) correct(ctx context.Context, s *podsnapshotv1.PodSnapshot, location string) error {
	m, err := c.node.Manifest(ctx, keyOf(s), location)
	if err != nil {
		return fmt.Errorf("manifest of %s: %w", keyOf(s), err)
	}
	before, facts := s.DeepCopy(), m.Meta.Facts
	if s.Annotations[podsnapshotv1.AnnotationRunscVersion] == facts.RunscVersion &&
		s.Annotations[podsnapshotv1.AnnotationArchitecture] == facts.Architecture {
		return nil
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, podsnapshotv1.AnnotationRunscVersion, facts.RunscVersion)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, podsnapshotv1.AnnotationArchitecture, facts.Architecture)
	if err := c.client.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		c.latest.drop(keyOf(s))
		return fmt.Errorf("annotations of PodSnapshot %s: %w", keyOf(s), err)
	}
	c.latest.put(s)
	return nil
}

func (c *Cluster) writeProgress(ctx context.Context, s *podsnapshotv1.PodSnapshot, p rules.Progress) error {
	before := s.DeepCopy()
	if !rules.SetProgress(s, p) {
		return nil
	}
	if err := c.client.Status().Patch(ctx, s, client.MergeFrom(before)); err != nil {
		c.latest.drop(keyOf(s))
		return fmt.Errorf("status of PodSnapshot %s: %w", keyOf(s), err)
	}
	c.latest.put(s)
	return nil
}

// progressOf returns the progress of the checkpoint behind one of this node's PodSnapshots.
func (c *Cluster) progressOf(ctx context.Context, s *podsnapshotv1.PodSnapshot) (rules.Progress, error) {
	k, p := keyOf(s), rules.Progress{OriginNode: c.cfg.NodeName}
	o, ordered := c.orders.state(k)
	q, known := c.requestOf(s)
	p.StoredAt = cmp.Or(q.Store, rules.StoredAt(s), c.cfg.Store)
	p.OwnDisk = c.node.OwnDisk(p.StoredAt)
	switch {
	case !known && rules.StoredAt(s) != "":
		p.Spooled, p.Replicated = true, true
		return p, nil
	case known && q.Stage == journal.StageReplicated:
		p.Spooled, p.Replicated = true, true
		return p, nil
	case known && q.Stage != journal.StageFailed, ordered && !known && !o.ended:
		p.Spooled = known && spooled(q) || ordered && o.spooled
		p.Waiting = q.Waiting
		return p, nil
	}
	local, err := c.node.HasLocal(ctx, k)
	if err != nil {
		return p, fmt.Errorf("look for %s: %w", k, err)
	}
	switch {
	case local:
		p.Spooled, p.NotInStore = true, q.Error
	case known:
		p.Failed = q.Error
	case ordered && o.err != nil:
		p.Failed = o.err.Error()
	default:
		p.Failed = fmt.Sprintf("node %s no longer has this snapshot", c.cfg.NodeName)
	}
	return p, nil
}
