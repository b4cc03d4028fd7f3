package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/lives"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// chooseAfter asks for the choice of a pod with a past.
func chooseAfter(t *testing.T, r *running, pod *corev1.Pod, past lives.Past) (restore.Choice, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	return r.Choose(ctx, refOf(pod), func() (lives.Past, error) { return past, nil })
}

// restoresLatest has the world's policy restore lost pods from their own newest snapshots, and waits until an agent
// knows that.
func (w *world) restoresLatest(value string) {
	w.t.Helper()
	edit(w, w.policyNow(), func(p *podsnapshotv1.PodSnapshotPolicy) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationOnSandboxLoss, value)
	})
}

func (w *world) policyNow() *podsnapshotv1.PodSnapshotPolicy {
	return &podsnapshotv1.PodSnapshotPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "policy"}}
}

// TestChooseForLost: a pod that has run is not restored: not from its group's newest snapshot, not from its own, not
// from the one that it names, and not if its policy forbids a cold start. Events say why. A new pod of the group is.
// With the policy's annotation it is restored from the newest snapshot of itself, and of no other pod.
func TestChooseForLost(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	pod := w.pod(a, "web")
	pod.Status.Conditions = []corev1.PodCondition{{Type: podsnapshotv1.ConditionPodRestored, Status: corev1.ConditionTrue}}
	if err := api.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	own := w.replicated(w.complete(w.trigger("t1", "web")))
	other := w.pod(a, "other")
	newest := w.replicated(w.complete(w.trigger("t2", "other")))
	names := w.pod(a, "names", name(newest.Name), func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationOnRestoreFailure,
			podsnapshotv1.OnRestoreFailureFail)
	})
	ran := lives.Past{Ran: true}
	for _, p := range []*corev1.Pod{pod, names} {
		if got, err := chooseAfter(t, r, p, ran); err != nil || got.Snapshot.Name != "" {
			t.Errorf("pod %s, which has run: %+v, %v", p.Name, got, err)
		}
		w.event(p, corev1.EventTypeNormal, "has lost its sandbox and starts cold")
	}
	w.event(pod, corev1.EventTypeNormal, "diapause.dev/on-sandbox-loss: restore-latest")
	until(w, pod, func(p *corev1.Pod) error {
		_, err := chooseAfter(t, r, p, ran) // the cache may not have had the condition
		for _, c := range p.Status.Conditions {
			if c.Type == podsnapshotv1.ConditionPodRestored && c.Reason == podsnapshotv1.ReasonSandboxLost {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v, %w", p.Status.Conditions, err)
	})
	for _, p := range []*corev1.Pod{w.pod(a, "new"), names} {
		if got, err := choose(t, r, p, enough); err != nil || got.Snapshot.Name == "" {
			t.Errorf("new pod %s: %+v, %v", p.Name, got, err)
		}
	}

	w.restoresLatest(podsnapshotv1.OnSandboxLossRestoreLatest)
	for p, want := range map[*corev1.Pod]string{pod: own.Name, other: newest.Name, w.pod(a, "third"): ""} {
		if err := w.eventually(func(context.Context) error {
			got, err := chooseAfter(t, r, p, ran)
			if err != nil || got.Snapshot.Name != want {
				return fmt.Errorf("pod %s: %+v, %w, want %q", p.Name, got, err, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	w.restoresLatest("restore")
	if err := w.eventually(func(context.Context) error {
		got, err := chooseAfter(t, r, pod, ran)
		if err != nil || got.Snapshot.Name != "" {
			return fmt.Errorf("with an unknown value: %+v, %w", got, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestChooseForStopped: a pod that Diapause has ended after a checkpoint is restored from that snapshot, and not from a
// newer one. Another one that has its name is refused, and so is one of another pod.
func TestChooseForStopped(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	pod := w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t1", "web")))
	w.replicated(w.complete(w.trigger("t2", "web")))
	id := snapshots.ID{
		Key: snapshot.Key{Namespace: w.ns, Name: s.Name}, UID: s.Annotations[podsnapshotv1.AnnotationSnapshotUID],
	}
	if got, err := chooseAfter(t, r, pod, lives.Past{Ran: true, Stopped: id}); err != nil || got.Snapshot != id.Key ||
		got.UID != id.UID {
		t.Errorf("%+v, %v, want %+v", got, err, id)
	}
	for why, c := range map[string]struct {
		pod *corev1.Pod
		uid string
	}{
		"another one has its name": {pod, "other"}, "is of another pod": {w.pod(a, "other"), id.UID},
	} {
		past := lives.Past{Ran: true, Stopped: snapshots.ID{Key: id.Key, UID: c.uid}}
		if _, err := chooseAfter(t, r, c.pod, past); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
}

// TestChooseUnknownPast: while nobody can tell whether a pod has run, it is refused, and the kubelet tries again. A pod
// for which there is nothing to restore is not asked about.
func TestChooseUnknownPast(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	away := func() (lives.Past, error) { return lives.Past{}, errors.New("containerd is away") }
	if got, err := r.Choose(t.Context(), refOf(w.pod(a, "web")), away); err == nil || !got.Fail {
		t.Errorf("%+v, %v", got, err)
	}
	free := w.pod(a, "free", func(p *corev1.Pod) { p.Labels = nil })
	if got, err := r.Choose(t.Context(), refOf(free), away); err != nil || got.Fail {
		t.Errorf("a pod of no policy: %+v, %v", got, err)
	}
	var uids map[string]bool
	if err := w.eventually(func(ctx context.Context) (err error) {
		uids, err = r.PodUIDs(ctx)
		if err == nil && !uids[string(free.UID)] {
			err = fmt.Errorf("the node has the pods %v, and not %s", uids, free.UID)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
