package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/request"
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
	meta.SetStatusCondition(&forged.Status.Conditions, metav1.Condition{
		Type: podsnapshotv1.ConditionReady, Status: metav1.ConditionTrue, Reason: podsnapshotv1.ReasonAllSnapshotsAvailable,
	})
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

// waiting waits until a trigger says that it waits for the controller.
func (w *world) waiting(t *podsnapshotv1.PodSnapshotManualTrigger) {
	w.t.Helper()
	until(w, t, func(t *podsnapshotv1.PodSnapshotManualTrigger) error {
		c := meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered)
		if c == nil || c.Status != metav1.ConditionUnknown || !strings.Contains(c.Message, notice.AwaitsController) {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}

// captured waits until there is a snapshot of a trigger's pod, and returns its PodSnapshot.
func (w *world) captured(t *podsnapshotv1.PodSnapshotManualTrigger) *podsnapshotv1.PodSnapshot {
	w.t.Helper()
	var found *podsnapshotv1.PodSnapshot
	err := w.eventually(func(context.Context) error {
		all := w.snapshots()
		for i := range all {
			if s := &all[i]; s.Annotations[podsnapshotv1.AnnotationTrigger] == t.Name && rules.Captured(s) {
				found = s
				return nil
			}
		}
		return errors.New("no snapshot of the trigger was captured")
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// TestUnconfirmed: without a controller a snapshot is restored on its node at once, and on no other one, and nothing
// says that it is done: neither its trigger nor the PodSnapshot, nor after a restart of the agent. When there is a
// controller again, all of that follows, and the next trigger did not have to wait.
func TestUnconfirmed(t *testing.T) {
	w := newWorld(t)
	w.unattended()
	a, b := w.node("a"), w.node("b")
	ra, rb := w.start(a), w.start(b)
	w.pod(a, "web")
	tr := w.trigger("t", "web")
	s := w.replicated(w.captured(tr))
	w.waiting(tr)
	if err := is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse,
		podsnapshotv1.ReasonAwaitingConfirmation); err != nil {
		t.Error(err)
	}
	if got, err := choose(t, ra, w.pod(a, "again"), enough); err != nil || got.Snapshot.Name != s.Name {
		t.Errorf("on its node: %+v, %v", got, err)
	}
	pod := w.pod(b, "elsewhere")
	if err := hopeless(t, rb, pod); !strings.Contains(err.Error(), "is not confirmed") {
		t.Errorf("elsewhere: %v", err)
	}
	ra.kill()
	w.start(a)
	next := w.trigger("next", "web")
	w.captured(next)
	w.waiting(next)
	w.waiting(tr)
	waits := make(chan error, 1)
	go func() {
		_, err := rb.Choose(t.Context(), refOf(pod), unlived)
		waits <- err
	}()
	w.control()
	if err := <-waits; err != nil {
		t.Errorf("with a controller: %v", err)
	}
	w.complete(tr)
	w.complete(next)
}

// TestNotConfirmed: a pod was deleted before any controller saw it. Whoever asked hears that, by whichever door, and
// the snapshot stays usable on its node. An administrator can confirm it.
func TestNotConfirmed(t *testing.T) {
	w := newWorld(t)
	w.unattended()
	a, b := w.node("a"), w.node("b")
	ra, rb := w.start(a), w.start(b)
	pod := w.pod(a, "web")
	tr := w.trigger("t", "web")
	s := w.replicated(w.captured(tr))
	w.deletePod("web")
	w.control()
	if got := w.failed(tr); !strings.Contains(got, "has not seen its pod "+w.ns+"/web") || !strings.Contains(got, s.Name) {
		t.Errorf("the trigger says %q", got)
	}
	w.event(pod, corev1.EventTypeWarning, "has not seen its pod "+w.ns+"/web")
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse,
			podsnapshotv1.ReasonNotConfirmed)
	})
	if _, err := choose(t, rb, w.pod(b, "before"), enough); !rules.Refused(err) {
		t.Errorf("before: %v", err)
	}
	if got, err := choose(t, ra, w.pod(a, "at-home"), enough); err != nil || got.Snapshot.Name != s.Name {
		t.Errorf("on its node: %+v, %v", got, err)
	}
	edit(w, s, func(s *podsnapshotv1.PodSnapshot) {
		s.Annotations[podsnapshotv1.AnnotationConfirmed] = podsnapshotv1.Confirmed
	})
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
			podsnapshotv1.ReasonAllSnapshotsAvailable)
	})
	after := w.pod(b, "after")
	err := w.eventually(func(context.Context) error {
		_, err := choose(t, rb, after, enough)
		return err
	})
	if err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestNotConfirmedByAnnotation: the answer in a pod's annotation waits for the confirmation, too, and says so.
func TestNotConfirmedByAnnotation(t *testing.T) {
	w := newWorld(t)
	w.unattended()
	node := w.node("a")
	w.start(node)
	pod := w.pod(node, "web")
	w.ask(pod, "x")
	until(w, pod, func(p *corev1.Pod) error {
		if s := request.ParseStatus(p); s.State != request.StateCheckpointing ||
			!strings.Contains(s.Message, notice.AwaitsController) {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	all := w.snapshots()
	edit(w, &all[0], func(s *podsnapshotv1.PodSnapshot) {
		s.Annotations[podsnapshotv1.AnnotationConfirmed] = "its pod was on another node"
	})
	if got := w.answered(pod, "x"); got.State != request.StateFailed ||
		!strings.Contains(got.Message, "its pod was on another node") {
		t.Errorf("answer %+v", got)
	}
}

// TestStopIsConfirmed: a pod that is to be stopped is not captured before its PodSnapshot is confirmed. If it is not,
// the trigger fails, and the pod was left alone.
func TestStopIsConfirmed(t *testing.T) {
	for _, answer := range []string{podsnapshotv1.Confirmed, "its pod was on another node"} {
		t.Run(answer, func(t *testing.T) {
			w := stopping(t)
			w.unattended()
			node := w.node("a")
			var steps atomic.Int32
			w.start(node, func(n *fakeNode, _ *kube.Config) {
				n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
					if s != stepAccept {
						steps.Add(1)
					}
					return nil
				}
			})
			pod := w.pod(node, "web")
			tr := w.trigger("t", "web")
			w.event(pod, corev1.EventTypeNormal, "Waiting: the controller has not confirmed PodSnapshot")
			if n := steps.Load(); n > 0 {
				t.Errorf("%d steps before the confirmation", n)
			}
			all := w.snapshots()
			edit(w, &all[0], func(s *podsnapshotv1.PodSnapshot) {
				s.Annotations[podsnapshotv1.AnnotationConfirmed] = answer
			})
			if answer == podsnapshotv1.Confirmed {
				w.complete(tr)
				return
			}
			if got := w.failed(tr); !strings.Contains(got, answer) {
				t.Errorf("the trigger says %q", got)
			}
			if n := steps.Load(); n > 0 {
				t.Errorf("%d steps of a pod that is to be left alone", n)
			}
		})
	}
}

// TestConfirmedAnother: the confirmation of an earlier snapshot of the same name does not count.
func TestConfirmedAnother(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	r := w.start(node)
	pod := w.pod(node, "web")
	earlier := w.snapshot("taken")
	earlier.Spec.PolicyName = "policy"
	earlier.Annotations = map[string]string{
		podsnapshotv1.AnnotationOriginNode: node, podsnapshotv1.AnnotationSnapshotUID: "earlier",
		podsnapshotv1.AnnotationConfirmed: podsnapshotv1.Confirmed,
	}
	w.create(earlier)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := r.node.Checkpoint(ctx, ctx, checkpoint.Options{Target: string(pod.UID), Name: "taken", Stop: true})
	if !errors.Is(err, errkind.ErrNotConfirmed) || !strings.Contains(err.Error(), "another snapshot") {
		t.Errorf("the error is %v", err)
	}
}
