package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newSDK returns the SDK for a sandbox whose pod is w.pod of that name.
func (w *world) newSDK(sandbox string) *sdk {
	return &sdk{
		api: w.dynamic, in: w.namespace, sandbox: sandbox,
		create: func(ctx context.Context, annotations map[string]string) error {
			p := w.pod(sandbox)
			p.Annotations = annotations
			return w.client.Create(ctx, p)
		},
	}
}

// current is the pod of that name as it is now.
func (w *world) current(name string) *ready {
	w.Helper()
	p := new(corev1.Pod)
	w.must(w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, p))
	return &ready{Pod: p}
}

// TestSDK goes through what the snapshot extension of the Agent Sandbox SDK offers, within its own
// timeouts.
func TestSDK(t *testing.T) {
	t.Parallel()
	w := begin(t)
	resources, err := w.Client.Discovery().ServerResourcesForGroupVersion("podsnapshot.gke.io/v1")
	w.must(err)
	s, other := w.newSDK("box"), w.newSDK("other")
	w.must(s.isReady(resources))
	before := w.life(w.run(w.pod("box")))
	w.run(w.pod("other"))

	t.Log("create and list")
	var made []string
	for _, mark := range []string{"one", "two"} {
		w.write("box", "/tmp/mark", mark)
		uid, at, err := s.snapshot(w.ctx, "My_Trigger_with_a_name_that_is_so_long_that_it_is_cut")
		w.must(err)
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			t.Error(err)
		}
		made = append([]string{uid}, made...)
		w.outlast(snapshotted{name: uid})
	}
	otherUID, _, err := other.snapshot(w.ctx, "___")
	w.must(err)
	w.lists(s, filter{}, made...)
	w.lists(other, filter{}, otherUID)
	oldest, newest := w.snapshot(made[1]).CreationTimestamp.Time, w.snapshot(made[0]).CreationTimestamp.Time
	w.lists(s, filter{after: newest}, made[0])
	w.lists(s, filter{before: oldest}, made[1])
	w.lists(s, filter{after: newest.Add(time.Second)})

	t.Log("suspend and resume")
	w.write("box", "/tmp/mark", "three")
	suspended, err := s.suspend(w.ctx)
	w.must(err)
	made = append([]string{suspended}, made...)
	from, err := s.resume(w.ctx)
	w.must(err)
	if from != suspended {
		t.Errorf("resumed from %s, want %s", from, suspended)
	}
	w.restored(w.current("box"), suspended, before)
	w.reads("box", "/tmp/mark", "three")

	t.Log("restore an older one")
	suspended, err = s.suspend(w.ctx)
	w.must(err)
	made = append([]string{suspended}, made...)
	w.must(s.restore(w.ctx, made[3]))
	w.restored(w.current("box"), made[3], before)
	w.reads("box", "/tmp/mark", "one")
	if err := s.restore(w.ctx, otherUID); err == nil {
		t.Error("a snapshot of another sandbox was restored")
	}

	t.Log("delete")
	ok, err := s.remove(w.ctx, made[3])
	if err != nil || !ok {
		t.Errorf("delete %s: %v, %v", made[3], ok, err)
	}
	if ok, err := s.remove(w.ctx, made[3]); err != nil || ok {
		t.Errorf("delete %s again: %v, %v", made[3], ok, err)
	}
	w.lists(s, filter{}, made[:3]...)
	removed, err := s.removeAll(w.ctx, filter{before: newest})
	if err != nil || !slices.Equal(removed, made[2:3]) {
		t.Errorf("deleted what is older: %v, %v, want %v", removed, err, made[2:3])
	}
	removed, err = s.removeAll(w.ctx, filter{})
	if err != nil || !slices.Equal(removed, made[:2]) {
		t.Errorf("deleted all: %v, %v, want %v", removed, err, made[:2])
	}
	w.lists(s, filter{all: true})
	w.lists(other, filter{}, otherUID)
	w.sound(w.current("box"))
}

// lists fails unless the SDK lists these snapshots, in this order.
func (w *world) lists(s *sdk, f filter, want ...string) {
	w.Helper()
	all, err := s.list(w.ctx, f)
	w.must(err)
	var got []string
	for _, i := range all {
		got = append(got, i.uid)
		if i.sourcePod != s.sandbox {
			w.Errorf("snapshot %s is of pod %q, want %q", i.uid, i.sourcePod, s.sandbox)
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("list %+v: %v, want %v", f, got, want)
	}
}
