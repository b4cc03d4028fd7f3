package rules_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// of makes a snapshot belong to another pod.
func of(p *corev1.Pod) func(*podsnapshotv1.PodSnapshot) {
	spec := podspec.Distil(p)
	return both(annotate(podsnapshotv1.AnnotationSpecHash, spec.Hash()),
		annotate(podsnapshotv1.AnnotationDistilledSpec, string(spec.Encode())))
}

// TestNearest: of the snapshots with another spec than a pod's, the most similar one is named, but only if there are
// no grouping labels.
func TestNearest(t *testing.T) {
	image := func(image string) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
	}
	other := pod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "worker", Image: "worker:7", Command: []string{"work"}}}
	})
	start := rules.NewPod{Pod: image("app:9"), Facts: facts}
	all := []podsnapshotv1.PodSnapshot{
		ready("old", 1, of(image("app:1"))), ready("new", 2, of(image("app:2"))), ready("worker", 3, of(other)),
		ready("elsewhere", 4, of(image("app:3")), func(s *podsnapshotv1.PodSnapshot) { s.Spec.PolicyName = "q" }),
	}
	p := policy("p", ungrouped)
	s, differences := start.Nearest(&p, all)
	if s == nil || s.Name != "new" ||
		!strings.Contains(strings.Join(differences, ";"), `image differs ("app:2" in the snapshot, "app:9" in the pod)`) {
		t.Errorf("nearest is %v: %q", s, differences)
	}
	if s, _ := start.Nearest(&p, nil); s != nil {
		t.Errorf("of none: %v", s)
	}
	grouped := policy("p")
	if s, _ := start.Nearest(&grouped, all); s != nil {
		t.Errorf("with groups by labels, which refuse: %v", s)
	}
}
