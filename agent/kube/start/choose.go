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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/restore"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/annotation"
)

// answerMargin is how long before the end of its context Choose answers, so that the caller still hears why there is no
// restore.
const answerMargin = 50 * time.Millisecond

// Choose implements local.Cluster. While a snapshot is still being made or replicated, Choose waits for it, as long
// as ctx lasts.
func (st *Starts) Choose(ctx context.Context, ref snapshot.PodRef, past func() (lives.Past, error),
) (restore.Choice, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-answerMargin))
		defer cancel()
	}
	pod, err := st.objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return restore.Choice{}, err
	}
	tellDropped(st.objects, pod)
	var former error // what it waited for before
	for {
		news := st.objects.News.Listen()
		choice, err := st.choose(ctx, pod, past)
		choice.Probes, choice.Readiness = podspec.ExecProbes(pod), podspec.ReadinessProbes(pod)
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

// Again implements local.Cluster. The choice has been made: Again adds what only the pod's spec and policy say.
func (st *Starts) Again(ctx context.Context, ref snapshot.PodRef, choice restore.Choice) (restore.Choice, error) {
	pod, err := st.objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return choice, err
	}
	policy, err := policyFor(ctx, st.objects, pod)
	if err != nil && !rules.Refused(err) {
		return choice, err
	}
	choice.Init, choice.Fail = podspec.EndingInits(pod), rules.MustRestore(pod, policy)
	choice.Probes, choice.Readiness = podspec.ExecProbes(pod), podspec.ReadinessProbes(pod)
	return choice, nil
}

// maxDropped bounds how many annotations one event names.
const maxDropped = 10

// tellDropped makes an event on a pod with annotations of gVisor's that no pod may set: containerd and the shim keep
// them from runsc.
func tellDropped(o *objects.Objects, pod *corev1.Pod) {
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
		names := strings.Join(dropped[:min(n, maxDropped)], ", ")
		if n > maxDropped {
			names += fmt.Sprintf(notice.DroppedAndMore, n-maxDropped)
		}
		o.Events.Pod(objects.RefOf(pod), snapshot.Key{}, notice.AnnotationsDropped, names)
	}
}

// choose is Choose without waiting. Which snapshots fit, and which of them is the newest, is in rules (fitting.go).
func (st *Starts) choose(ctx context.Context, pod *corev1.Pod, past func() (lives.Past, error),
) (restore.Choice, error) {
	var choice restore.Choice
	policy, several := policyFor(ctx, st.objects, pod)
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
	facts, err := st.facts(ctx)
	if err != nil {
		return choice, fmt.Errorf("facts of this node: %w", err)
	}
	newPod := rules.NewPod{Pod: pod, Facts: facts, Node: st.nodeName, Now: st.now()}
	s, err := st.finder.snapshotFor(ctx, newPod, policy, before)
	if err != nil || s == nil {
		return choice, err
	}
	if err := st.attempts.spent(objects.RefOf(pod)); err != nil && !choice.Fail {
		return choice, fmt.Errorf("restore from PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	st.names.Saw(s.Name, s.CreationTimestamp.Time) // snapshots of the pod get newer names than that
	choice.Snapshot, choice.Init, choice.Inherited = objects.KeyOf(s), podspec.EndingInits(pod), rules.Inherited(s)
	choice.Containers = len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	if choice.Store, err = st.checker.storeOf(ctx, s); err != nil {
		return choice, err
	}
	choice.UID, err = st.checker.available(ctx, pod, s, choice.Store, before)
	return choice, err
}

// policyFor returns the policy that selects a pod, or nil if none does. If several do, the error is a refusal.
func policyFor(ctx context.Context, o *objects.Objects, pod *corev1.Pod) (*podsnapshotv1.PodSnapshotPolicy, error) {
	var policies podsnapshotv1.PodSnapshotPolicyList
	for _, read := range []objects.List{o.List, o.Fresh} {
		if err := read(ctx, &policies, client.InNamespace(pod.Namespace)); err != nil {
			return nil, fmt.Errorf("read policies of namespace %s: %w", pod.Namespace, err)
		}
		if policy, err := rules.Only(pod, policies.Items); policy != nil || err != nil {
			return policy, err
		}
	}
	return nil, nil
}

// snapshotFor returns the PodSnapshot that a pod is to be restored from, or nil. That is the one that the pod's own
// annotation or policy means. A pod that has run is restored only as lost.go says. Policy may be nil if the pod names
// one.
func (f *finder) snapshotFor(ctx context.Context, newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy,
	before lives.Past,
) (*podsnapshotv1.PodSnapshot, error) {
	switch name := wanted(newPod.Pod); {
	case before.Ran:
		return f.snapshotOfLost(ctx, newPod, policy, before)
	case name != "":
		return f.namedSnapshot(ctx, newPod, name)
	}
	return f.newestSnapshot(ctx, newPod, policy)
}
