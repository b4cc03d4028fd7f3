package kube_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// confirmed waits until the controller has confirmed a PodSnapshot.
func (w *world) confirmed(s *podsnapshotv1.PodSnapshot) *podsnapshotv1.PodSnapshot {
	w.t.Helper()
	return until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if !rules.Confirmed(s) {
			return fmt.Errorf("the controller says %q", s.Annotations[podsnapshotv1.AnnotationConfirmed])
		}
		return nil
	})
}

// doubted waits until the controller has said why it does not confirm a PodSnapshot.
func (w *world) doubted(s *podsnapshotv1.PodSnapshot, why string) {
	w.t.Helper()
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if got := s.Annotations[podsnapshotv1.AnnotationConfirmed]; rules.Confirmed(s) || !strings.Contains(got, why) {
			return fmt.Errorf("the controller says %q, want %q", got, why)
		}
		return nil
	})
}

// forge makes a PodSnapshot like s, as a node does that was taken over, and puts a snapshot behind it.
func (w *world) forge(s *podsnapshotv1.PodSnapshot, name string, edit func(*podsnapshotv1.PodSnapshot)) {
	w.t.Helper()
	forged := w.snapshot(name)
	forged.Labels, forged.Spec, forged.Annotations = s.Labels, s.Spec, s.DeepCopy().Annotations
	delete(forged.Annotations, podsnapshotv1.AnnotationConfirmed)
	edit(forged)
	w.create(forged)
	before := forged.DeepCopy()
	rules.SetProgress(forged, rules.Progress{Spooled: true, Replicated: true, StoredAt: w.location()})
	if err := api.client.Status().Patch(w.t.Context(), forged, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
	m, err := w.stores.get(w.location(), snapshot.Key{Namespace: w.ns, Name: s.Name})
	if err != nil {
		w.t.Fatal(err)
	}
	copied := *m
	copied.Meta.Name = name
	if err := w.stores.put(w.location(), &copied); err != nil {
		w.t.Fatal(err)
	}
}

// says sets an annotation.
func says(annotation, value string) func(map[string]string) {
	return func(m map[string]string) { m[annotation] = value }
}

// TestHostileNodeInvents: what a node that was taken over makes of pods that it has not run is restored on no other
// node, neither by its name nor as the newest of a group. Nor does it have others deleted as surplus.
func TestHostileNodeInvents(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	ra := w.start(a)
	rb := w.start(b)
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		groups := &p.Spec.SnapshotGroupingRules.GroupByLabelValue
		groups.GroupRetentionPolicy = &podsnapshotv1.GroupRetentionPolicy{MaxSnapshotCountPerGroup: 1}
	})
	w.pod(a, "web")
	w.pod(b, "victim")
	w.pod(a, "mirror", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.Spec.ServiceAccountName = ""
	})
	genuine := w.confirmed(w.replicated(w.complete(w.trigger("t", "web"))))
	ra.kill() // somebody else acts for the node from now on
	invented := map[string]struct {
		edit func(map[string]string)
		why  string
	}{
		"0-invented": {
			says(podsnapshotv1.AnnotationOriginPod, "no-such-pod"), "has not seen its pod",
		},
		"0-of-no-pod":  {func(m map[string]string) { delete(m, podsnapshotv1.AnnotationOriginPod) }, "has not seen its pod"},
		"0-of-no-name": {says(podsnapshotv1.AnnotationOriginPod, "../nodes/"), "has not seen its pod"},
		"0-other-node": {
			func(m map[string]string) {
				m[podsnapshotv1.AnnotationOriginPod] = "victim"
				delete(m, podsnapshotv1.AnnotationOriginPodUID)
			},
			"its pod was on node",
		},
		"0-other-uid":     {says(podsnapshotv1.AnnotationOriginPodUID, "x"), "the UID of its pod"},
		"0-other-account": {says(podsnapshotv1.AnnotationServiceAccount, "other"), "service account"},
		"0-other-spec":    {says(podsnapshotv1.AnnotationSpecHash, "v1:0"), "another spec"},
		"0-mirror": {
			func(m map[string]string) {
				m[podsnapshotv1.AnnotationOriginPod] = "mirror"
				delete(m, podsnapshotv1.AnnotationOriginPodUID)
			},
			"made by a kubelet",
		},
	}
	for name, c := range invented {
		w.forge(genuine, name, func(s *podsnapshotv1.PodSnapshot) { c.edit(s.Annotations) })
	}
	for name, c := range invented {
		w.doubted(w.snapshot(name), c.why)
		pod := w.pod(b, "asks-"+name, func(p *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationSnapshotName, name)
			if strings.Contains(name, "account") {
				p.Spec.ServiceAccountName = "other"
			}
		})
		_, err := choose(t, rb, pod, enough)
		if !rules.Refused(err) || !strings.Contains(err.Error(), "is not confirmed") &&
			!strings.Contains(err.Error(), "does not fit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.forge(genuine, "0-other-group", func(s *podsnapshotv1.PodSnapshot) {
		s.Labels = map[string]string{podsnapshotv1.LabelSandboxNameHash: "elsewhere"}
	})
	w.doubted(w.snapshot("0-other-group"), "other labels")
	if got, err := choose(t, rb, w.pod(b, "next"), enough); err != nil || got.Snapshot.Name != genuine.Name {
		t.Errorf("the newest of the group is %+v, %v", got, err)
	}
	if err := api.client.Get(t.Context(), keyOf(genuine), genuine); err != nil || genuine.DeletionTimestamp != nil {
		t.Errorf("the genuine one goes: %v", err)
	}
}

// TestConfirmedAfterTheEnd: a PodSnapshot is confirmed whose pod was deleted before the PodSnapshot was made.
func TestConfirmedAfterTheEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	w.leads()
	ra := w.start(a)
	rb := w.start(b)
	w.pod(a, "web")
	s := w.confirmed(w.replicated(w.complete(w.trigger("t", "web"))))
	ra.kill()
	w.deletePod("web")
	w.forge(s, "late", func(*podsnapshotv1.PodSnapshot) {})
	w.confirmed(w.snapshot("late"))
	if got, err := choose(t, rb, w.pod(b, "next", name("late")), enough); err != nil || got.Snapshot.Name != "late" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestUnconfirmedAtHome: without a controller a snapshot is restored on its node at once, and on no other one. When
// there is a controller again, a pod elsewhere that waits gets it.
func TestUnconfirmedAtHome(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	ra, rb := w.start(a), w.start(b)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	if got, err := choose(t, ra, w.pod(a, "again"), enough); err != nil || got.Snapshot.Name != s.Name {
		t.Errorf("on its node: %+v, %v", got, err)
	}
	pod := w.pod(b, "elsewhere")
	if got, err := choose(t, rb, pod, enough/40); err == nil || !strings.Contains(err.Error(), "is not confirmed") {
		t.Errorf("elsewhere: %+v, %v", got, err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := rb.Choose(t.Context(), refOf(pod))
		waits <- err
	}()
	w.control()
	if err := <-waits; err != nil {
		t.Errorf("with a controller: %v", err)
	}
}

// TestConfirmedByAdministrator: after a restart of the controller a snapshot of a pod that is gone is not confirmed,
// unless an administrator does that.
func TestConfirmedByAdministrator(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.start(a)
	rb := w.start(b)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	w.deletePod("web")
	w.control()
	w.doubted(s, "has not seen its pod")
	if _, err := choose(t, rb, w.pod(b, "before"), enough); !rules.Refused(err) {
		t.Errorf("before: %v", err)
	}
	edit(w, s, func(s *podsnapshotv1.PodSnapshot) {
		s.Annotations[podsnapshotv1.AnnotationConfirmed] = podsnapshotv1.Confirmed
	})
	pod := w.pod(b, "after")
	err := w.eventually(func(context.Context) error {
		_, err := choose(t, rb, pod, enough)
		return err
	})
	if err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
