package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/restore"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// answerMargin is how long before the end of its context Choose answers, so that the caller still hears why there is no
// restore.
const answerMargin = 50 * time.Millisecond

// Choose implements agent.Cluster. While a snapshot is still being made or replicated, Choose waits for it, as long
// as ctx lasts.
func (c *Cluster) Choose(ctx context.Context, ref snapshot.PodRef) (restore.Choice, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-answerMargin))
		defer cancel()
	}
	pod, err := c.podOf(ctx, ref)
	if err != nil || pod == nil {
		return restore.Choice{}, err
	}
	for {
		news := c.news.listen()
		choice, err := c.choose(ctx, pod)
		if !errors.Is(err, rules.ErrPending) {
			return choice, err
		}
		select {
		case <-news:
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return choice, err
		}
	}
}

// podOf returns a pod whose sandbox is on this node. It returns nil if the API server does not know the pod, which is
// then not the cluster's concern. The pod may be too new for the cache.
func (c *Cluster) podOf(ctx context.Context, ref snapshot.PodRef) (*corev1.Pod, error) {
	select {
	case <-c.synced:
	case <-ctx.Done():
		return nil, fmt.Errorf("pod %s: the agent has not heard from the API server yet: %w", ref, context.Cause(ctx))
	}
	name := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	pod := new(corev1.Pod)
	for _, from := range []client.Reader{c.client, c.live} {
		err := from.Get(ctx, name, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read pod %s: %w", ref, err)
		}
		if err == nil && (ref.UID == "" || string(pod.UID) == ref.UID) {
			return pod, nil
		}
	}
	return nil, nil
}

// choose is Choose without waiting.
func (c *Cluster) choose(ctx context.Context, pod *corev1.Pod) (restore.Choice, error) {
	var choice restore.Choice
	policy, several := c.policyFor(ctx, pod)
	if several != nil && !rules.Refused(several) {
		return choice, several
	}
	choice.Fail = rules.MustRestore(pod, policy)
	facts, err := c.node.Facts(ctx)
	if err != nil {
		return choice, fmt.Errorf("facts of this node: %w", err)
	}
	start := rules.Start{Pod: pod, Facts: facts}
	var s *podsnapshotv1.PodSnapshot
	switch name := wanted(pod); {
	case name != "":
		s, err = c.namedSnapshot(ctx, start, name)
	case several != nil:
		return choice, several
	case policy == nil:
		return choice, nil
	default:
		s, err = c.newestSnapshot(ctx, start, policy)
	}
	if err != nil || s == nil {
		return choice, err
	}
	if err := c.attempts.spent(refOf(pod)); err != nil && !choice.Fail {
		return choice, fmt.Errorf("restore from PodSnapshot %s: %w", keyOf(s), err)
	}
	c.names.Saw(s.Name, s.CreationTimestamp.Time) // snapshots of the pod get newer names than that
	choice.Snapshot, choice.Init = keyOf(s), ended(pod)
	choice.Containers = len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	if choice.Store, err = c.storeOf(ctx, s); err != nil {
		return choice, err
	}
	choice.UID, err = c.available(ctx, pod, s, choice.Store)
	return choice, err
}

// wanted returns the name of the PodSnapshot that a pod asks for. In another namespace, it is "namespace/name". It is
// empty if the pod asks for none.
func wanted(pod *corev1.Pod) string {
	if name := pod.Annotations[podsnapshotv1.AnnotationSnapshotName]; name != "" {
		return name
	}
	return strings.TrimPrefix(pod.Annotations[podsnapshotv1.AnnotationRestoreFrom], pod.Namespace+"/")
}

// namedSnapshot returns the PodSnapshot that a pod names.
func (c *Cluster) namedSnapshot(ctx context.Context, start rules.Start,
	name string,
) (*podsnapshotv1.PodSnapshot, error) {
	k := snapshot.Key{Namespace: start.Pod.Namespace, Name: name}
	if k.Validate() != nil {
		return nil, start.Named(name, nil)
	}
	s, err := c.podSnapshot(ctx, k)
	// The cache may be behind: the pod may start right after its snapshot was made.
	if err == nil && (s == nil || !rules.Ready(s) || !rules.Replicated(s) && !rules.NodeLocal(s)) {
		s = new(podsnapshotv1.PodSnapshot)
		if err = c.live.Get(ctx, named(k), s); apierrors.IsNotFound(err) {
			s, err = nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read PodSnapshot %s: %w", k, err)
	}
	return s, start.Named(name, s)
}

// newestSnapshot returns the newest PodSnapshot of a pod's group.
func (c *Cluster) newestSnapshot(ctx context.Context, start rules.Start,
	policy *podsnapshotv1.PodSnapshotPolicy,
) (*podsnapshotv1.PodSnapshot, error) {
	all, err := c.groupOf(ctx, start.Pod, policy)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i] = *c.latest.newer(keyOf(&all[i]), &all[i])
	}
	s, err := start.NewestOf(policy, all)
	if s == nil && err == nil {
		c.tellNearest(start, policy, all)
	}
	return s, err
}

// tellNearest makes an event on a pod that starts cold. It names the most similar snapshot, and what differs.
func (c *Cluster) tellNearest(start rules.Start, policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) {
	s, differences := start.Nearest(policy, all)
	if s == nil {
		return
	}
	c.event(refOf(start.Pod), keyOf(s), corev1.EventTypeNormal, actionRestore, fmt.Sprintf(
		"Not restored: no PodSnapshot of policy %s was made of a pod like this one; %s, the most similar, does not fit: %s",
		policy.Name, keyOf(s), strings.Join(differences, "; ")))
}

// available checks that this node can get a snapshot, and that the manifest matches the PodSnapshot: the manifest is
// what counts. It returns the UID in the manifest.
func (c *Cluster) available(ctx context.Context, pod *corev1.Pod, s *podsnapshotv1.PodSnapshot,
	location string,
) (uid string, err error) {
	k := keyOf(s)
	local, err := c.node.HasLocal(ctx, k)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", k, err)
	}
	here := local || rules.NodeLocal(s) && s.Annotations[podsnapshotv1.AnnotationOriginNode] == c.cfg.NodeName
	if err := rules.Elsewhere(s); err != nil && !here {
		return "", err
	}
	m, err := c.node.Manifest(ctx, k, location)
	if err != nil {
		return "", fmt.Errorf("manifest of PodSnapshot %s: %w", k, err)
	}
	return m.Meta.UID, genuine(pod, s, m)
}

// genuine refuses a manifest that does not match the PodSnapshot or the pod.
func genuine(pod *corev1.Pod, s *podsnapshotv1.PodSnapshot, m *storage.Manifest) error {
	o := m.Meta.Origin
	facts := []struct{ what, stored, want string }{
		{"identity", m.Meta.UID, s.Annotations[podsnapshotv1.AnnotationSnapshotUID]},
		{"scope", m.Meta.Scope.String(), rules.Scope(s).String()},
		{"service account", o.ServiceAccount, rules.ServiceAccount(pod)},
		{"distilled spec", o.SpecHash, podspec.Distil(pod).Hash()},
	}
	if m.Meta.Scope == snapshot.RootfsOnly {
		facts = facts[:3]
	}
	for _, x := range facts {
		if x.stored != x.want {
			return rules.Refuse("the stored snapshot does not match PodSnapshot %s: its %s differs (%.80q stored, %.80q here)",
				keyOf(s), x.what, x.stored, x.want)
		}
	}
	return nil
}

// ended returns the names of a pod's init containers that end before its containers run.
func ended(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.InitContainers {
		if x := &pod.Spec.InitContainers[i]; !podspec.Sidecar(x) {
			names = append(names, x.Name)
		}
	}
	return names
}

// Describe implements agent.Cluster.
func (c *Cluster) Describe(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	if plan := c.orders.plan(ref.UID); plan != nil {
		return c.description(ctx, plan), nil
	}
	pod, err := c.podOf(ctx, ref)
	if err != nil || pod == nil {
		return checkpoint.Description{}, err
	}
	if pod.Status.Phase == corev1.PodPending && len(ended(pod)) > 0 {
		return checkpoint.Description{}, rules.Refuse("pod %s is not running yet, its init containers have not ended: wait "+
			"until they have", ref)
	}
	plan, err := c.prepareLocal(ctx, pod)
	if err != nil {
		return checkpoint.Description{}, err
	}
	return c.description(ctx, plan), nil
}

func (c *Cluster) description(ctx context.Context, p *rules.Plan) checkpoint.Description {
	return checkpoint.Description{
		Cluster: c.identityOrNone(ctx), ServiceAccount: p.ServiceAccount, Group: p.Group,
		SpecHash: p.SpecHash, Store: p.Store, Scope: p.Scope, Stop: p.Stop,
	}
}

// Changed implements agent.Cluster.
func (c *Cluster) Changed(q journal.Request) {
	c.requests.put(q)
	c.progressed(q.Key)
	if spooled(q) {
		c.captured(q.Key)
	}
}
