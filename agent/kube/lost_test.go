package kube_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// dataLost waits until a PodSnapshot says that its data is lost.
func (w *world) dataLost(s *podsnapshotv1.PodSnapshot) {
	w.t.Helper()
	for _, kind := range []string{podsnapshotv1.ConditionReady, podsnapshotv1.ConditionStorageReplicated} {
		until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
			return is(s.Status.Conditions, kind, metav1.ConditionFalse, podsnapshotv1.ReasonDataLost)
		})
	}
}

// TestDataLost: a PodSnapshot that came back without its data says so, whatever its node remembers. No pod is restored
// from it: one that names it is refused, another one gets the group's next. If the data comes back, it is Ready again.
func TestDataLost(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	ra, rb := w.start(a), w.start(b)
	w.pod(a, "web")
	older := w.replicated(w.complete(w.trigger("t1", "web")))
	lost := w.replicated(w.complete(w.trigger("t2", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: lost.Name}
	data, err := w.stores.get(w.location(), k)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.stores.remove(w.location(), k, ""); err != nil {
		t.Fatal(err)
	}
	w.control(func(c *kube.ControllerConfig) { c.OrphanAge = 200 * time.Millisecond })
	w.dataLost(lost)
	ra.kill()
	w.start(a)

	if got, err := choose(t, rb, w.pod(b, "next"), enough); err != nil || got.Snapshot.Name != older.Name {
		t.Errorf("the next pod gets %+v, %v", got, err)
	}
	named := w.pod(b, "named", name(lost.Name))
	if got, err := choose(t, rb, named, enough); err == nil || !strings.Contains(err.Error(), "is no longer in store") {
		t.Errorf("a pod that names it gets %+v, %v", got, err)
	}
	w.replicated(w.complete(w.trigger("t3", "web"))) // the agent of its node has looked at all
	w.dataLost(lost)

	if err := w.stores.put(w.location(), data); err != nil {
		t.Fatal(err)
	}
	w.replicated(lost)
	until(w, lost, func(s *podsnapshotv1.PodSnapshot) error {
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
			podsnapshotv1.ReasonAllSnapshotsAvailable)
	})
}

// TestDataLostOwnDisk: of PodSnapshots in a store that only one node sees, that node says whether their data is lost.
func TestDataLostOwnDisk(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	s, root := w.realStore()
	ownDisks.Store("dir:"+root, w.disks[b])
	local := func(name, node string) *podsnapshotv1.PodSnapshot {
		o := w.snapshot(name)
		o.Spec.PolicyName = "policy"
		o.Annotations = map[string]string{
			podsnapshotv1.AnnotationOriginNode: node, podsnapshotv1.AnnotationConfirmed: podsnapshotv1.Confirmed,
		}
		w.create(o)
		rules.SetProgress(o, rules.Progress{
			Spooled: true, Replicated: true, OwnDisk: true, StoredAt: "dir:" + root, OriginNode: node,
		})
		if err := api.client.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	ready := func(o *podsnapshotv1.PodSnapshot) {
		t.Helper()
		until(w, o, func(o *podsnapshotv1.PodSnapshot) error {
			if err := is(o.Status.Conditions, podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse,
				podsnapshotv1.ReasonNodeLocal); err != nil {
				return err
			}
			return is(o.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
				podsnapshotv1.ReasonAllSnapshotsAvailable)
		})
	}
	store := func(name string) {
		w.store(s, snapshot.Meta{Key: snapshot.Key{Namespace: w.ns, Name: name}, UID: "u", Created: time.Now()})
	}
	others, there, lost := local("a-others", a), local("b-there", b), local("c-lost", b)
	store("b-there")
	w.start(b, func(_ *fakeNode, c *kube.Config) { c.OrphanAge = 200 * time.Millisecond })
	w.dataLost(lost)
	store("c-lost")
	ready(lost)
	ready(others)
	ready(there)
}
