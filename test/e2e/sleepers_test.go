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

// TestSDKBesideSleepers goes through what the SDK offers, for a sandbox that a SleepPolicy puts to sleep again and
// again: it sees the snapshots that it has asked for, and no others, and none wakes the pod but what needs its program.
func TestSDKBesideSleepers(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(sleepPolicy, w.namespace))
	s := w.newSDK("box")
	before := w.life(w.run(w.pod("box")))
	asleep := func() {
		t.Helper()
		w.must(until(w.ctx, func() error { return w.condition("box", corev1.ConditionTrue, "") }))
	}

	asleep()
	one, _, err := s.snapshot(w.ctx, "asleep")
	w.must(err)
	w.must(w.condition("box", corev1.ConditionTrue, ""))
	w.lists(s, filter{all: true}, one)

	w.write("box", "/tmp/mark", "later")
	asleep()
	two, err := s.suspend(w.ctx)
	w.must(err)
	from, err := s.resume(w.ctx)
	w.must(err)
	if from != two {
		t.Errorf("resumed from %s, want %s", from, two)
	}
	w.restored(w.current("box"), two, before)
	w.reads("box", "/tmp/mark", "later")

	asleep()
	three, err := s.suspend(w.ctx)
	w.must(err)
	w.lists(s, filter{all: true}, three, two, one)
	w.must(s.restore(w.ctx, one))
	w.restored(w.current("box"), one, before)
	w.reads("box", "/tmp/mark", "")

	asleep()
	removed, err := s.removeAll(w.ctx, filter{})
	if want := []string{three, two, one}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("deleted %v: %v, want %v", removed, err, want)
	}
	w.lists(s, filter{all: true})
	w.whole(w.current("box"), before)
}

// TestHostileNeighboursOfSleeper: the snapshot of a sleep is the memory of a live pod. Neither another pod of its
// namespace nor one of another tenant starts from it, whatever they name. What they do does not wake the sleeper.
func TestHostileNeighboursOfSleeper(t *testing.T) {
	t.Parallel()
	w := begin(t)
	n := w.Node(0)
	p := w.run(w.pod("web", on(n)))
	before := w.life(p)
	w.write("web", "/tmp/secret", "mine")
	w.sleeps("web", "a")
	all := w.snapshots()
	if len(all) != 1 {
		t.Fatalf("%d snapshots of one sleep", len(all))
	}
	secret := all[0].Name

	w.cold(w.run(w.pod("beside", on(n), from(secret))), before, "serves that pod alone")
	theirs := *w
	theirs.namespace = w.newNamespace(w.namespace + "-b")
	theirs.apply(fmt.Sprintf(policy, theirs.namespace))
	for _, name := range []string{secret, w.namespace + "/" + secret} {
		theirs.cold(theirs.run(theirs.pod("web", on(n), from(name))), before, "namespace")
		theirs.remove("web")
	}
	twin := theirs.run(theirs.pod("web", on(n))) // with the same name and labels: the same group, but for the namespace
	if theirs.life(twin).Boot == before.Boot {
		t.Error("the twin was restored")
	}
	own := theirs.checkpoint(twin)
	theirs.replicated(own.name)

	w.well("web")
	w.whole(p, before)
	w.wakes("web", "packet")
	w.reads("web", "/tmp/secret", "mine")
}
