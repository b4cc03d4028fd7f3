package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// asleepOn waits until a PodSnapshot of a sleep says whether its pod sleeps on it.
func (w *world) asleepOn(name string, want metav1.ConditionStatus) *podsnapshotv1.PodSnapshot {
	w.t.Helper()
	s := w.snapshot(name)
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if got := rules.Asleep(s); got != want {
			return fmt.Errorf("asleep: %s, want %s", got, want)
		}
		return nil
	})
	return s
}

// TestHostileSleepServesItsPodAlone: the snapshot of a sleep is the memory of a live pod. No other pod is restored from
// it, by policy or by name; it does not push out the snapshot that somebody asked for; and it goes with its pod.
func TestHostileSleepServesItsPodAlone(t *testing.T) {
	w := newWorld(t)
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.SnapshotGroupingRules = &podsnapshotv1.SnapshotGroupingRules{
			GroupByLabelValue: podsnapshotv1.GroupByLabelValue{
				Labels:               []string{"app"},
				GroupRetentionPolicy: &podsnapshotv1.GroupRetentionPolicy{MaxSnapshotCountPerGroup: 1},
			},
		}
	})
	node := w.node("a")
	w.control()
	r := w.start(node)
	first := w.pod(node, "first")
	golden := w.replicated(w.complete(w.trigger("golden", "first")))
	made, err := r.node.fallAsleep(t.Context(), string(first.UID))
	if err != nil {
		t.Fatal(err)
	}
	s := w.asleepOn(made, metav1.ConditionTrue)
	w.replicated(s)
	if len(s.Labels) > 0 || rules.Purpose(s) != "sleep" {
		t.Errorf("the sleep's PodSnapshot has the labels %v and the purpose %q", s.Labels, rules.Purpose(s))
	}
	second := w.pod(node, "second")
	if c, err := choose(t, r, second, enough); err != nil || c.Snapshot.Name != golden.Name {
		t.Errorf("another pod of the group: %+v, %v, want %s", c, err, golden.Name)
	}
	thief := w.pod(node, "thief", name(made))
	if c, err := choose(t, r, thief, enough); !rules.Refused(err) {
		t.Errorf("a pod that names it: %+v, %v, want a refusal", c, err)
	}
	r.node.wake(string(first.UID))
	w.asleepOn(made, metav1.ConditionFalse)
	w.deletePod("first")
	w.gone(s)
	if all := w.snapshots(); len(all) != 1 || all[0].Name != golden.Name || all[0].DeletionTimestamp != nil {
		t.Errorf("PodSnapshots %+v, want the one that somebody asked for", all)
	}
}

// TestHostileSleepWithoutPolicy: a pod's annotation puts it to sleep only if a policy selects the pod.
func TestHostileSleepWithoutPolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		policy func(*world)
		want   podsnapshotv1.SleepState
	}{
		"no policy":           {func(w *world) { w.delete(w.policy("policy")) }, podsnapshotv1.SleepFailed},
		"a PodSnapshotPolicy": {func(*world) {}, podsnapshotv1.SleepAsleep},
		"a SleepPolicy": {
			func(w *world) { w.delete(w.policy("policy")); w.sleepPolicy("sleep") }, podsnapshotv1.SleepAsleep,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.policy(w)
			node := w.node("a")
			var attempts atomic.Int64
			w.start(node, sleeper(&attempts, nil))
			p := w.pod(node, "web", func(p *corev1.Pod) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationSleep, "now")
			})
			until(w, p, func(p *corev1.Pod) error {
				if s := podsnapshotv1.ParseSleepStatus(p.Annotations); s.Sleep != "now" || s.State != tc.want {
					return fmt.Errorf("status %+v, want %s", s, tc.want)
				}
				return nil
			})
		})
	}
}

// TestInvalidSleepAnnotations: a pod with an annotation that has no effect gets an event that says why, again if its
// value was changed, and only then.
func TestInvalidSleepAnnotations(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	var attempts atomic.Int64
	w.start(node, sleeper(&attempts, nil))
	set := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
	}
	p := w.pod(node, "web", set(podsnapshotv1.AnnotationWakeAt, "tomorrow"))
	w.awaitSleepEvent(p, podsnapshotv1.ReasonInvalidAnnotation, `diapause.dev/wake-at is "tomorrow"`)
	edit(w, p, set(podsnapshotv1.AnnotationWakeAt, "07:30"))
	w.awaitSleepEvent(p, podsnapshotv1.ReasonInvalidAnnotation, `is "07:30" and has no effect`)
	edit(w, p, func(p *corev1.Pod) {
		set(podsnapshotv1.AnnotationWakeAt, "2030-12-31T07:30:00Z")(p)
		set(podsnapshotv1.AnnotationWake, strings.Repeat("x", 254))(p)
	})
	w.awaitSleepEvent(p, podsnapshotv1.ReasonInvalidAnnotation, "diapause.dev/wake has 254 bytes")
	if n, err := w.sleepEvents(t.Context(), p, podsnapshotv1.ReasonInvalidAnnotation, "wake-at"); n != 2 || err != nil {
		t.Errorf("%d events about the time, want one for each value: %v", n, err)
	}
}

// TestSleepSnapshotDeleted: a PodSnapshot on which a pod sleeps is deleted, and is gone at once. What the pod needs of
// it stays on its node until the pod is awake, or gone. A pod that is deleted meanwhile ends at once.
func TestSleepSnapshotDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*world)
		store   func(*world) string
		away    error // why it is not stored yet
	}{
		"bucket":    {func(*world) {}, (*world).location, nil},
		"directory": {func(w *world) { w.delete(w.policy("policy")) }, func(*world) string { return ownStore }, nil},
		"waiting":   {func(*world) {}, (*world).location, errors.New("the store is away")},
	} {
		t.Run(name, func(t *testing.T) {
			w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
			tc.prepare(w)
			a := w.node("a")
			w.control()
			r := w.start(a)
			pod := w.pod(a, "web", lasting(60))
			<-r.synced(w)
			w.stores.fail(tc.away)
			made, err := r.node.fallAsleep(t.Context(), string(pod.UID))
			if err != nil {
				t.Fatal(err)
			}
			s := w.asleepOn(made, metav1.ConditionTrue)
			if tc.away == nil {
				w.replicated(s)
			}
			w.stores.fail(nil)
			w.delete(s)
			w.gone(s)
			k := snapshot.Key{Namespace: w.ns, Name: made}
			if _, err := w.stores.get(tc.store(w), k); err == nil && name != "directory" {
				t.Error("it is in the bucket")
			}
			if w.disks[a].manifest(k) == nil {
				t.Fatal("the pod cannot be woken")
			}
			if name == "bucket" {
				w.delete(pod)
				if _, saved := r.MayEnd(t.Context(), refOf(pod)); saved {
					t.Error("its successors inherit what was deleted")
				}
			}
			r.node.wake(string(pod.UID))
			if err := w.eventually(func(context.Context) error {
				if _, err := w.stores.get(tc.store(w), k); err == nil || w.disks[a].manifest(k) != nil {
					return errors.New("its data is still there")
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSleptAgain: a pod wakes, and sleeps again, before anybody has looked. Its condition has the time of the later
// sleep.
func TestSleptAgain(t *testing.T) {
	w := newWorld(t)
	w.policy("policy")
	node := w.node("a")
	r := w.start(node)
	pod := w.pod(node, "web")
	<-r.synced(w)
	if _, err := r.node.fallAsleep(t.Context(), string(pod.UID)); err != nil {
		t.Fatal(err)
	}
	w.asleepSince(pod, time.Now())
	later := time.Now().Add(time.Minute)
	r.node.asleepFrom(string(pod.UID), later)
	r.Slept(refOf(pod))
	w.asleepSince(pod, later)
}

// TestWokenUnheard: a pod wakes just when its agent is killed, and no shim tells the next agent. That one sees that the
// pod no longer sleeps, and says so, of the snapshot of its sleep, too.
func TestWokenUnheard(t *testing.T) {
	w := newWorld(t)
	w.policy("policy")
	node := w.node("a")
	r := w.start(node)
	pod := w.pod(node, "web")
	<-r.synced(w)
	name, err := r.node.fallAsleep(t.Context(), string(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	w.asleepSince(pod, time.Now())
	w.asleepOn(name, metav1.ConditionTrue)
	r.kill()
	w.start(node) // of whose pods none sleeps
	until(w, pod, func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == podsnapshotv1.ConditionAsleep && c.Status == corev1.ConditionFalse &&
				c.Reason == podsnapshotv1.ReasonWoke {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
	w.asleepOn(name, metav1.ConditionFalse)
}

// asleepSince waits until a pod's condition says that it sleeps, since that minute.
func (w *world) asleepSince(pod *corev1.Pod, since time.Time) {
	w.t.Helper()
	until(w, pod, func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == podsnapshotv1.ConditionAsleep && c.Status == corev1.ConditionTrue &&
				c.LastTransitionTime.Sub(since).Abs() < 30*time.Second {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
}

// TestDeletedAsleep: the snapshot of a sleep serves the successors of a pod that is deleted while it sleeps, if its
// policy has pods saved when they are deleted. The agent does that before the pod's containers end. If it cannot, as
// its node is lost, the controller does, once the pod is gone.
func TestDeletedAsleep(t *testing.T) {
	for how, lost := range map[string]bool{"by its owner": false, "with its node": true} {
		t.Run(how, func(t *testing.T) {
			w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
			a, b := w.node("a"), w.node("b")
			w.control()
			ra, rb := w.start(a), w.start(b)
			pod := w.pod(a, "web", lasting(60))
			<-ra.synced(w)
			name, err := ra.node.fallAsleep(t.Context(), string(pod.UID))
			if err != nil {
				t.Fatal(err)
			}
			s := w.asleepOn(name, metav1.ConditionTrue)
			w.replicated(s)
			w.confirmed(s)
			if lost {
				w.delete(pod, client.GracePeriodSeconds(0))
			} else {
				w.delete(pod)
				if !w.mayEnd(ra, refOf(pod)) {
					t.Fatal("the pod was not saved")
				}
				if err := api.client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || !rules.Inherited(s) {
					t.Errorf("when its containers may end, the PodSnapshot is %+v, %v", s.ObjectMeta, err)
				}
				w.deletePod("web")
			}
			until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
				if group, _ := rules.Inheritable(s); !rules.Inherited(s) || !maps.Equal(s.Labels, group) {
					return fmt.Errorf("PodSnapshot %+v", s.ObjectMeta)
				}
				return nil
			})
			c, err := choose(t, rb, w.pod(b, "next"), enough)
			if err != nil || c.Snapshot.Name != name || !c.Inherited {
				t.Errorf("its successor: %+v, %v, want %s", c, err, name)
			}
			if all := w.snapshots(); len(all) != 1 {
				t.Errorf("%d PodSnapshots, want one", len(all))
			}
		})
	}
}

// TestDeletedAsleepWhileAPIFails: the API server fails while the snapshot of a pod that is deleted asleep is to serve
// its successors. The agent tries again. It does not if the API server forbids it.
func TestDeletedAsleepWhileAPIFails(t *testing.T) {
	for name, tc := range map[string]struct {
		status   int // of the answer; 0: none
		failures int64
		saved    bool
	}{
		"no answer":      {0, 3, true},
		"internal error": {http.StatusInternalServerError, 3, true},
		"forbidden":      {http.StatusForbidden, 1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
			a := w.node("a")
			var failures atomic.Int64
			r := w.start(a, func(_ *fakeNode, c *kube.Config) {
				c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return roundTrip(func(r *http.Request) (*http.Response, error) {
						if !strings.Contains(r.URL.Path, "/podsnapshots/") || failures.Load() <= 0 {
							return next.RoundTrip(r)
						}
						failures.Add(-1)
						if tc.status == 0 {
							return nil, errors.New("away")
						}
						reason := metav1.StatusReason(strings.ReplaceAll(http.StatusText(tc.status), " ", ""))
						body := fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`,
							reason, tc.status)
						return &http.Response{
							StatusCode: tc.status, Request: r, Body: io.NopCloser(strings.NewReader(body)),
							Header: http.Header{"Content-Type": {"application/json"}},
						}, nil
					})
				})
			})
			pod := w.pod(a, "web", lasting(60))
			<-r.synced(w)
			made, err := r.node.fallAsleep(t.Context(), string(pod.UID))
			if err != nil {
				t.Fatal(err)
			}
			s := w.asleepOn(made, metav1.ConditionTrue)
			w.delete(pod)
			failures.Store(tc.failures)
			if saved := w.mayEnd(r, refOf(pod)); saved != tc.saved {
				t.Errorf("saved: %v, want %v", saved, tc.saved)
			}
			failures.Store(0)
			err = api.client.Get(t.Context(), client.ObjectKeyFromObject(s), s)
			if err != nil || rules.Inherited(s) != tc.saved {
				t.Errorf("the PodSnapshot is %+v, %v", s.ObjectMeta, err)
			}
		})
	}
}

// TestDeletedAsleepWithoutAgent: a pod is deleted and ends in its sleep while no agent runs. The next agent has its
// successors inherit the snapshot, whether the Pod object is still there or gone. It does not if the pod had woken, was
// not deleted, or its policy no longer has it saved.
func TestDeletedAsleepWithoutAgent(t *testing.T) {
	forever := client.GracePeriodSeconds(3600)
	for name, tc := range map[string]struct {
		deleted   bool
		woke      bool
		forgotten bool // by its policy
		inherited bool
	}{
		"deleted": {deleted: true, inherited: true}, "ended": {}, "woken": {deleted: true, woke: true},
		"policy changed": {deleted: true, forgotten: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
			a := w.node("a")
			first := w.start(a)
			pod := w.pod(a, "web", lasting(60))
			<-first.synced(w)
			made, err := first.node.fallAsleep(t.Context(), string(pod.UID))
			if err != nil {
				t.Fatal(err)
			}
			s := w.asleepOn(made, metav1.ConditionTrue)
			w.replicated(s)
			first.kill()
			if tc.deleted {
				w.delete(pod, forever)
			}
			if tc.forgotten {
				edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
					delete(p.Annotations, podsnapshotv1.AnnotationOnTermination)
				})
			}
			next := w.start(a, func(f *fakeNode, _ *kube.Config) {
				if !tc.woke {
					f.ended = map[string]snapshot.PodRef{s.Annotations[podsnapshotv1.AnnotationSnapshotUID]: refOf(pod)}
				}
			})
			until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
				decided := rules.Inherited(s) || rules.Asleep(s) == metav1.ConditionFalse
				if _, ended, _ := (ended{next.node}).EndedAsleep(t.Context(), snapshot.Key{},
					s.Annotations[podsnapshotv1.AnnotationSnapshotUID]); !decided || ended {
					return fmt.Errorf("nothing is decided: %+v", s.Status.Conditions)
				}
				return nil
			})
			if rules.Inherited(s) != tc.inherited {
				t.Errorf("the PodSnapshot is %+v", s.ObjectMeta)
			}
		})
	}
}
