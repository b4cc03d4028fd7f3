package kube_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// TestUnlikeAnySnapshot: under a policy without grouping labels, a pod with another spec starts cold. That is no
// failure, and an event on the pod says why.
func TestUnlikeAnySnapshot(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) { p.Spec.SnapshotGroupingRules = nil })
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	i := 0
	var pod *corev1.Pod
	err := w.eventually(func(context.Context) error { // the agent's cache has the policy
		i++
		pod = w.pod(a, fmt.Sprint("new", i), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" })
		got, err := choose(t, r, pod, enough)
		if err == nil && got.Snapshot.Name != "" {
			err = fmt.Errorf("it is restored from %s", got.Snapshot)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.event(pod, corev1.EventTypeNormal, w.ns+"/"+s.Name+", the most similar, does not fit: container app: image differs")
	if err := api.client.Get(t.Context(), keyOf(pod), pod); err != nil || restored(pod) != nil {
		t.Errorf("a restore that nobody asked for has failed: %+v, %v", restored(pod), err)
	}
}
