package start

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/restore"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/annotation"
	"diapause.dev/storage"
)

// answerMargin is how long before the end of its context Choose answers, so that the caller still hears why there is no
// restore.
const answerMargin = 50 * time.Millisecond

// Choose implements agent.Cluster. While a snapshot is still being made or replicated, Choose waits for it, as long
// as ctx lasts.
func (st *Starts) Choose(ctx context.Context, ref snapshot.PodRef, past func() (lives.Past, error),
) (restore.Choice, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-answerMargin))
		defer cancel()
	}
	pod, err := st.Objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return restore.Choice{}, err
	}
	st.tellDropped(pod)
	var former error // what it waited for before
	for {
		news := st.Objects.News.Listen()
		choice, err := st.choose(ctx, pod, past)
		choice.Probes = podspec.ExecProbes(pod)
		switch {
		case err != nil && ctx.Err() != nil && former != nil && !rules.Refused(err): // no time was left for this look
			return choice, former
		case !errors.Is(err, rules.ErrPending):
			return choice, err
		}
		former = err
		select {
		case <-news:
		case <-time.After(objects.LookAgain):
		case <-ctx.Done():
			return choice, err
		}
	}
}

// Again implements agent.Cluster. The choice has been made: Again adds what only the pod's spec and policy say.
func (st *Starts) Again(ctx context.Context, ref snapshot.PodRef, choice restore.Choice) (restore.Choice, error) {
	pod, err := st.Objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return choice, err
	}
	policy, err := st.policyFor(ctx, pod)
	if err != nil && !rules.Refused(err) {
		return choice, err
	}
	choice.Init, choice.Fail = podspec.EndingInits(pod), rules.MustRestore(pod, policy)
	choice.Probes = podspec.ExecProbes(pod)
	return choice, nil
}

// maxDropped bounds how many annotations one event names.
const maxDropped = 10

// tellDropped makes an event on a pod with annotations of gVisor's that no pod may set: containerd and the shim keep
// them from runsc.
func (st *Starts) tellDropped(pod *corev1.Pod) {
	has := func(volume string) bool {
		return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume })
	}
	var dropped []string
	for _, name := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if annotation.OfGVisor(name) && !annotation.Allowed(name, pod.Annotations[name], has) {
			dropped = append(dropped, name)
		}
	}
	if n := len(dropped); n > 0 {
		message := fmt.Sprintf("Annotations that a pod may not set are kept from gVisor: %s",
			strings.Join(dropped[:min(n, maxDropped)], ", "))
		if n > maxDropped {
			message += fmt.Sprintf(" and %d more", n-maxDropped)
		}
		st.Objects.Event(objects.RefOf(pod), snapshot.Key{}, corev1.EventTypeWarning, objects.ActionStart, message)
	}
}

// choose is Choose without waiting. Which snapshots fit, and which of them is the newest, is in rules (fitting.go).
func (st *Starts) choose(ctx context.Context, pod *corev1.Pod, past func() (lives.Past, error),
) (restore.Choice, error) {
	var choice restore.Choice
	policy, several := st.policyFor(ctx, pod)
	if several != nil && !rules.Refused(several) {
		return choice, several
	}
	choice.Fail = rules.MustRestore(pod, policy)
	if policy == nil && wanted(pod) == "" {
		return choice, several
	}
	before, err := past()
	if err != nil { // the kubelet tries again
		choice.Fail = true
		return choice, err
	}
	facts, err := st.Node.Facts(ctx)
	if err != nil {
		return choice, fmt.Errorf("facts of this node: %w", err)
	}
	newPod := rules.NewPod{Pod: pod, Facts: facts, Node: st.NodeName, Now: st.now()}
	s, err := st.snapshotFor(ctx, newPod, policy, before)
	if err != nil || s == nil {
		return choice, err
	}
	if err := st.attempts.spent(objects.RefOf(pod)); err != nil && !choice.Fail {
		return choice, fmt.Errorf("restore from PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	st.Names.Saw(s.Name, s.CreationTimestamp.Time) // snapshots of the pod get newer names than that
	choice.Snapshot, choice.Init, choice.Inherited = objects.KeyOf(s), podspec.EndingInits(pod), rules.Inherited(s)
	choice.Containers = len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	if choice.Store, err = st.storeOf(ctx, s); err != nil {
		return choice, err
	}
	choice.UID, err = st.available(ctx, pod, s, choice.Store, before)
	return choice, err
}

// snapshotFor returns the PodSnapshot that a pod is to be restored from, or nil. That is the one that the pod's own
// annotation or policy means. A pod that has run is restored only as lost.go says. Policy may be nil if the pod names
// one.
func (st *Starts) snapshotFor(ctx context.Context, newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy,
	before lives.Past,
) (*podsnapshotv1.PodSnapshot, error) {
	switch name := wanted(newPod.Pod); {
	case before.Ran:
		return st.snapshotOfLost(ctx, newPod, policy, before)
	case name != "":
		return st.namedSnapshot(ctx, newPod, name)
	}
	return st.newestSnapshot(ctx, newPod, policy)
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
func (st *Starts) namedSnapshot(ctx context.Context, newPod rules.NewPod,
	name string,
) (*podsnapshotv1.PodSnapshot, error) {
	k := snapshot.Key{Namespace: newPod.Pod.Namespace, Name: name}
	if k.Validate() != nil {
		return nil, newPod.Named(name, nil)
	}
	s, err := st.Objects.PodSnapshot(ctx, k)
	// The cache may be behind: the pod may start right after its snapshot was made.
	if err == nil && (s == nil || !rules.Captured(s) || !rules.Decided(s) || !rules.Replicated(s) && !rules.NodeLocal(s)) {
		s = new(podsnapshotv1.PodSnapshot)
		if err = st.Objects.Live.Get(ctx, objects.Named(k), s); apierrors.IsNotFound(err) {
			s, err = nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read PodSnapshot %s: %w", k, err)
	}
	return s, newPod.Named(name, s)
}

// newestSnapshot returns the newest PodSnapshot of a pod's group. While a pod that this one replaces may still be
// saved, the error is of kind rules.ErrPending.
func (st *Starts) newestSnapshot(ctx context.Context, newPod rules.NewPod,
	policy *podsnapshotv1.PodSnapshotPolicy,
) (*podsnapshotv1.PodSnapshot, error) {
	ending, err := st.predecessors(ctx, newPod, policy) // before the snapshots: who is gone by then was saved or never is
	if err != nil {
		return nil, err
	}
	all, err := st.groupOf(ctx, newPod.Pod, policy)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i] = *st.Objects.Newer(&all[i])
	}
	if err := rules.Saved(ending, all); err != nil {
		return nil, err
	}
	if err := st.inherits(ctx, newPod, policy); err != nil {
		return nil, err
	}
	s, err := newPod.NewestOf(policy, all)
	if s == nil && err == nil {
		st.tellNearest(newPod, policy, all)
	}
	return s, err
}

// predecessors returns the pods that a new one replaces and that may be being saved now. Those of a Deployment are
// replaced as soon as they are deleted. If the API server does not answer for objects.AskTime, or half the time that is
// left, there are none: a pod starts all the same.
func (st *Starts) predecessors(ctx context.Context, newPod rules.NewPod,
	policy *podsnapshotv1.PodSnapshotPolicy,
) ([]corev1.Pod, error) {
	if metav1.GetControllerOf(newPod.Pod) == nil ||
		!rules.SavedOnTermination(newPod.Pod, []podsnapshotv1.PodSnapshotPolicy{*policy}) {
		return nil, nil
	}
	patience := objects.AskTime
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pods corev1.PodList // the cache has those of this node alone
	labels, _ := rules.Group(policy, newPod.Pod.Labels)
	err := objects.Patiently(asking, func(ctx context.Context) error {
		return st.Objects.Live.List(ctx, &pods, client.InNamespace(newPod.Pod.Namespace), client.MatchingLabels(labels))
	})
	if err != nil && ctx.Err() == nil {
		st.log.Warn("a pod does not wait for the save of those that it replaces", "pod", rules.PodKey(newPod.Pod), "error",
			err)
		return nil, nil
	}
	return newPod.Predecessors(policy, pods.Items), err
}

// inherits returns an error of kind rules.ErrPending while the controller is about to have the pod's group inherit the
// snapshot of a pod that was lost in its sleep. If the API server does not answer, nobody can tell.
func (st *Starts) inherits(ctx context.Context, newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy) error {
	if !rules.SavedOnTermination(newPod.Pod, []podsnapshotv1.PodSnapshotPolicy{*policy}) {
		return nil
	}
	var all podsnapshotv1.PodSnapshotList
	if err := st.Objects.List(ctx, &all, client.InNamespace(newPod.Pod.Namespace)); err != nil {
		return fmt.Errorf("read PodSnapshots of namespace %s: %w", newPod.Pod.Namespace, err)
	}
	s, err := st.lost(ctx, newPod, policy, newPod.Heritage(policy, all.Items))
	if err != nil && ctx.Err() == nil {
		st.log.Warn("a pod does not wait for the snapshot of one that was lost in its sleep", "pod",
			rules.PodKey(newPod.Pod), "error", err)
	}
	if s == nil {
		return nil
	}
	return fmt.Errorf("PodSnapshot %s, of the sleep of a pod that is gone, is about to be inherited: %w", objects.KeyOf(s),
		rules.ErrPending)
}

// lost returns one of these snapshots of sleeps whose pod is gone, or nil. It reads the group's pods at once, and one
// alone only if it is not among them.
func (st *Starts) lost(ctx context.Context, newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy,
	sleeps []*podsnapshotv1.PodSnapshot,
) (*podsnapshotv1.PodSnapshot, error) {
	if len(sleeps) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, objects.FreshTime)
	defer cancel()
	var pods corev1.PodList // the cache has those of this node alone
	labels, _ := rules.Group(policy, newPod.Pod.Labels)
	err := st.Objects.Live.List(ctx, &pods, client.InNamespace(newPod.Pod.Namespace), client.MatchingLabels(labels))
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool)
	for i := range pods.Items {
		there[string(pods.Items[i].UID)] = true
	}
	for _, s := range sleeps {
		uid := s.Annotations[podsnapshotv1.AnnotationOriginPodUID]
		if there[uid] {
			continue
		}
		pod := new(corev1.Pod) // its labels may have been changed
		name := client.ObjectKey{Namespace: s.Namespace, Name: s.Annotations[podsnapshotv1.AnnotationOriginPod]}
		err := st.Objects.Live.Get(ctx, name, pod)
		switch {
		case apierrors.IsNotFound(err), err == nil && string(pod.UID) != uid:
			return s, nil
		case err != nil:
			return nil, err
		}
	}
	return nil, nil
}

// tellNearest makes an event on a pod that starts cold. It names the most similar snapshot, and what differs.
func (st *Starts) tellNearest(newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) {
	s, differences := newPod.Nearest(policy, all)
	if s == nil {
		return
	}
	message := fmt.Sprintf(
		"Not restored: no PodSnapshot of policy %s was made of a pod like this one; %s, the most similar, does not fit: %s",
		policy.Name, objects.KeyOf(s), strings.Join(differences, "; "))
	st.Objects.Event(objects.RefOf(newPod.Pod), objects.KeyOf(s), corev1.EventTypeNormal, objects.ActionRestore, message)
}

// storeOf returns the location of the store that a snapshot is read from. The node that made a PodSnapshot has written
// where it is stored, and may have been taken over. So only stores are read that an operator has named.
func (st *Starts) storeOf(ctx context.Context, s *podsnapshotv1.PodSnapshot) (string, error) {
	location, err := st.Objects.StoreOf(ctx, s)
	if err != nil || location == "" {
		return location, err
	}
	for _, read := range []objects.List{st.Objects.List, st.Objects.Fresh} {
		configured, err := st.Objects.Configured(ctx, st.Store, read)
		if err != nil {
			return "", err
		}
		if slices.Contains(configured, location) {
			return location, nil
		}
	}
	return "", rules.Refuse("PodSnapshot %s is said to be stored at %.200q, which no PodSnapshotStorageConfig names: if "+
		"it is to be trusted, make one with that location", objects.KeyOf(s), location)
}

// available checks that this node can get a snapshot, and that the manifest matches the PodSnapshot: the manifest is
// what counts. It returns the UID in the manifest.
func (st *Starts) available(ctx context.Context, pod *corev1.Pod, s *podsnapshotv1.PodSnapshot,
	location string, before lives.Past,
) (uid string, err error) {
	k := objects.KeyOf(s)
	local, err := st.Node.HasLocal(ctx, k)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", k, err)
	}
	here := local || rules.NodeLocal(s) && s.Annotations[podsnapshotv1.AnnotationOriginNode] == st.NodeName
	if err := rules.Elsewhere(s); err != nil && !here {
		return "", err
	}
	m, err := st.Node.TrustedManifest(ctx, k, location)
	if err != nil {
		return "", fmt.Errorf("manifest of PodSnapshot %s: %w", k, err)
	}
	if err := genuine(pod, s, m); err != nil {
		return "", err
	}
	if err := itsOwn(pod, s, m, before); err != nil {
		return "", err
	}
	return m.Meta.UID, st.atHome(ctx, pod, s, m)
}

// atHome refuses a snapshot of another cluster, and one of a namespace that was deleted, whatever now has its name.
// An administrator may have had this cluster take it over. While the API server does not say what is here, the error is
// of kind rules.ErrPending.
func (st *Starts) atHome(ctx context.Context, pod *corev1.Pod, s *podsnapshotv1.PodSnapshot,
	m *storage.Manifest,
) error {
	o := m.Meta.Origin
	if rules.Adopted(s, o) {
		return nil
	}
	for _, x := range []struct {
		what, stored string
		read         func() (string, error)
	}{
		{"cluster", o.Cluster, func() (string, error) { return st.Objects.Identity(ctx) }},
		{"namespace", o.NamespaceUID, func() (string, error) { return st.Objects.NamespaceOf(ctx, pod) }},
	} {
		if x.stored == "" { // an earlier agent has made it, or one that did not reach the API server
			continue
		}
		here, err := x.read()
		if err != nil {
			return fmt.Errorf("%w: %w", rules.ErrPending, err)
		}
		if x.stored != here {
			return rules.Refuse("snapshot %s was made in another %s: UID %.80q then, %s now", m.Meta.Key, x.what, x.stored, here)
		}
	}
	return nil
}

// genuine refuses a manifest that does not match the PodSnapshot or the pod.
func genuine(pod *corev1.Pod, s *podsnapshotv1.PodSnapshot, m *storage.Manifest) error {
	o := m.Meta.Origin
	facts := []struct{ what, stored, want string }{
		{"identity", m.Meta.UID, s.Annotations[podsnapshotv1.AnnotationSnapshotUID]},
		{"scope", m.Meta.Scope.String(), rules.Scope(s).String()},
		{"purpose", m.Meta.Purpose.String(), rules.Purpose(s).String()},
		{"service account", o.ServiceAccount, rules.ServiceAccount(pod)},
		{"distilled spec", o.SpecHash, podspec.Distil(pod).Hash()},
	}
	if m.Meta.Scope == snapshot.RootfsOnly {
		facts = facts[:4]
	}
	for _, x := range facts {
		if x.stored != x.want {
			return rules.Refuse("the stored snapshot does not match PodSnapshot %s: its %s differs (%.80q stored, %.80q here)",
				objects.KeyOf(s), x.what, x.stored, x.want)
		}
	}
	return nil
}

// policyFor returns the policy that selects a pod, or nil if none does. If several do, the error is a refusal.
func (st *Starts) policyFor(ctx context.Context, pod *corev1.Pod) (*podsnapshotv1.PodSnapshotPolicy, error) {
	var policies podsnapshotv1.PodSnapshotPolicyList
	for _, read := range []objects.List{st.Objects.List, st.Objects.Fresh} {
		if err := read(ctx, &policies, client.InNamespace(pod.Namespace)); err != nil {
			return nil, fmt.Errorf("read policies of namespace %s: %w", pod.Namespace, err)
		}
		if policy, err := rules.Only(pod, policies.Items); policy != nil || err != nil {
			return policy, err
		}
	}
	return nil, nil
}

// groupOf returns the PodSnapshots that have the labels of a pod's group. There may be others among them.
func (st *Starts) groupOf(ctx context.Context, pod *corev1.Pod,
	policy *podsnapshotv1.PodSnapshotPolicy,
) ([]podsnapshotv1.PodSnapshot, error) {
	labels, missing := rules.Group(policy, pod.Labels)
	if len(missing) > 0 {
		return nil, nil
	}
	var all podsnapshotv1.PodSnapshotList
	if err := st.Objects.Fresh(ctx, &all, client.InNamespace(pod.Namespace), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("read PodSnapshots of namespace %s: %w", pod.Namespace, err)
	}
	return all.Items, nil
}
