package request

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// publisher creates the PodSnapshots of this node's checkpoints.
type publisher struct {
	objects  *objects.Objects
	node     publishing
	facts    func(context.Context) (snapshot.Facts, error) // what the node offers to a restore
	nodeName string
	names    *names.Clock
	records  *record.Records
	waiters  *waiters
	plans    *plans
	arrivals *arrivals
	log      *slog.Logger
}

// publishing is what a publisher needs of the agent.
type publishing interface {
	holder
	reader
}

// reader reads the manifests of snapshots.
type reader interface {
	Manifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
}

// publishIfDue creates the PodSnapshot for a request of this node, if there must be one and it is its turn.
func (p *publisher) publishIfDue(ctx context.Context, k snapshot.Key, e record.Entry) (*podsnapshotv1.PodSnapshot,
	error,
) {
	q, known := p.records.Reported.Get(k)
	if !known {
		return nil, nil
	}
	if p.early(q) {
		return nil, errEarly
	}
	if q.Stage == journal.StageFailed || record.Spooled(q) {
		there, err := stored(ctx, p.node, q)
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", k, err)
		}
		if !there {
			return nil, p.unpublished(ctx, q, e)
		}
	}
	return p.publish(ctx, q, e)
}

// unpublished forgets a request without anything to publish, once the object that asked has its answer.
func (p *publisher) unpublished(ctx context.Context, q journal.Request, e record.Entry) error {
	if d, open := p.waiters.requesterOf(ctx, e); open {
		p.waiters.kick(d)
		return nil
	}
	p.records.Reported.Drop(q)
	return p.records.Ledger.Drop(q.Key)
}

// errNamespaceGone means that a snapshot's namespace was deleted. Another one may have its name by now.
var errNamespaceGone = errors.New("the snapshot's namespace was deleted")

// home returns an error of kind errNamespaceGone if the namespace that a snapshot was made in is gone, even if another
// one has its name.
func (p *publisher) home(ctx context.Context, q journal.Request) error {
	if q.NamespaceUID == "" {
		return nil
	}
	uid, err := p.objects.IDs.NamespaceUID(ctx, q.Key.Namespace)
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
func (p *publisher) publish(ctx context.Context, q journal.Request, e record.Entry) (*podsnapshotv1.PodSnapshot,
	error,
) {
	if err := p.home(ctx, q); errors.Is(err, errNamespaceGone) {
		p.log.Warn("no PodSnapshot", "snapshot", q.Key.String(), "error", err)
		return nil, p.unpublished(ctx, q, e) // a sweep removes what the store has
	} else if err != nil {
		return nil, err
	}
	if e.Plan == nil {
		plan, err := p.planOf(ctx, q)
		if err != nil {
			return nil, err
		}
		e.Plan = plan
	}
	s, err := p.newSnapshot(ctx, q, e)
	if err != nil {
		return nil, err
	}
	err = p.objects.Create(ctx, s)
	switch {
	case apierrors.IsAlreadyExists(err): // the cache did not have it yet
		if err := p.objects.Live.Get(ctx, objects.Named(q.Key), s); err != nil {
			return nil, fmt.Errorf("read PodSnapshot %s: %w", q.Key, err)
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		p.log.Warn("no PodSnapshot, its namespace is gone", "snapshot", q.Key.String())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("create PodSnapshot %s: %w", q.Key, err)
	}
	p.seen(s)
	p.objects.Wrote(s)
	e.Key, e.UID, e.Pod, e.Published = q.Key, q.SnapshotUID, q.Pod, string(s.UID)
	return s, p.records.Ledger.Put(e)
}

// newSnapshot returns a request's PodSnapshot, for publish to create.
func (p *publisher) newSnapshot(ctx context.Context, q journal.Request, e record.Entry) (*podsnapshotv1.PodSnapshot,
	error,
) {
	plan := e.Plan
	facts, err := p.facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("facts of this node: %w", err)
	}
	annotations := map[string]string{
		podsnapshotv1.AnnotationOriginPod:      q.Pod.Name,
		podsnapshotv1.AnnotationOriginPodUID:   q.Pod.UID,
		podsnapshotv1.AnnotationOriginNode:     p.nodeName,
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
func (p *publisher) planOf(ctx context.Context, q journal.Request) (*rules.Plan, error) {
	pod, err := p.objects.PodHere(ctx, client.ObjectKey{Namespace: q.Pod.Namespace, Name: q.Pod.Name})
	if err != nil {
		return nil, err
	}
	if pod != nil && string(pod.UID) == q.Pod.UID {
		return p.plans.local(ctx, pod)
	}
	m, err := p.node.Manifest(ctx, q.Key, q.Store)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", q.Key, err)
	}
	o := m.Meta.Origin
	return &rules.Plan{
		Policy: podsnapshotv1.NoPolicy, Store: q.Store, ServiceAccount: o.ServiceAccount, SpecHash: o.SpecHash,
		Group: o.Group,
	}, nil
}
