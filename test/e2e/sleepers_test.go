package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// TestGoldenBesideSleepers: pods of a golden snapshot's group sleep. The snapshot stays, although only one is kept, and
// new pods start from it, not from what a sleeper has done since. When a newer checkpoint replaces it, the sleeper
// wakes all the same.
func TestGoldenBesideSleepers(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(goldenPolicy, w.namespace, 1))
	golden := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "golden", "golden": "web"} }

	first := w.run(w.pod("first", golden))
	before := w.life(first)
	s := w.checkpoint(first)
	one := w.run(w.pod("one", golden))
	w.restored(one, s.name, before)
	w.write("one", "/tmp/mark", "session")
	w.sleeps("one", "a")
	w.wantGroup(s.name)

	two := w.run(w.pod("two", golden))
	w.restored(two, s.name, before)
	w.reads("two", "/tmp/mark", "")
	w.outlast(s)
	newer := w.checkpoint(two)
	w.awaitGone(w.snapshot(s.name))
	w.wantGroup(newer.name)
	w.must(w.condition("one", corev1.ConditionTrue, ""))
	w.whole(one, before)
	w.wakes("one", "packet")
	w.reads("one", "/tmp/mark", "session")
}

// wantGroup fails unless the snapshots that bear a label of the group are those of these names, and Ready.
func (w *world) wantGroup(names ...string) {
	w.Helper()
	var l podsnapshotv1.PodSnapshotList
	w.must(w.client.List(w.ctx, &l, client.InNamespace(w.namespace), client.MatchingLabels{"golden": "web"}))
	var got []string
	for _, s := range l.Items {
		if meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionReady) {
			got = append(got, s.Name)
		}
	}
	if !slices.Equal(got, names) {
		w.Errorf("the group has snapshots %v, want %v", got, names)
	}
}
