package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
	"diapause.dev/agent/ready"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// sleepPolicy makes a SleepPolicy for all pods with app=web that are idle for a second.
func (w *world) sleepPolicy(name string, edit ...func(*sleepv1alpha1.SleepPolicySpec)) *sleepv1alpha1.SleepPolicy {
	w.t.Helper()
	p := &sleepv1alpha1.SleepPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: sleepv1alpha1.SleepPolicySpec{
			Selector:  metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			IdleAfter: "1s", Idle: sleepv1alpha1.IdleLimits{CPUMillicores: 50},
		},
	}
	for _, e := range edit {
		e(&p.Spec)
	}
	w.create(p)
	return p
}

func dryRun(s *sleepv1alpha1.SleepPolicySpec) { s.DryRun = true }

// begins makes a pod's containers ready.
func (w *world) begins(p *corev1.Pod) {
	w.t.Helper()
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.ContainersReady, Status: corev1.ConditionTrue,
	})
	if err := api.client.Status().Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

// sleeper has a node put pods to sleep, or fail to with err. It counts the attempts.
func sleeper(attempts *atomic.Int64, err error) func(*fakeNode, *kube.Config) {
	return func(n *fakeNode, _ *kube.Config) {
		n.sleeps = func(uid string) error {
			attempts.Add(1)
			if err != nil {
				return err
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.asleep == nil {
				n.asleep = make(map[string]time.Time)
			}
			n.asleep[uid] = time.Now()
			n.cluster.Sleeps.Slept(podByUID(uid))
			return nil
		}
	}
}

// sleepEvents returns how many events of a reason a pod has whose note contains text.
func (w *world) sleepEvents(ctx context.Context, pod *corev1.Pod, reason, text string) (n int, err error) {
	var all corev1.EventList
	if err := api.client.List(ctx, &all, client.InNamespace(w.ns)); err != nil {
		return 0, err
	}
	for _, e := range all.Items {
		if e.InvolvedObject.UID == pod.UID && e.Reason == reason && strings.Contains(e.Message, text) {
			n++
		}
	}
	return n, nil
}

func (w *world) awaitSleepEvent(pod *corev1.Pod, reason, text string) {
	w.t.Helper()
	if err := w.eventually(func(ctx context.Context) error {
		n, err := w.sleepEvents(ctx, pod, reason, text)
		if err == nil && n == 0 {
			err = fmt.Errorf("no event %s says %q", reason, text)
		}
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// TestSleepPolicy: the idle pod that a policy selects is put to sleep, and no other.
func TestSleepPolicy(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	a := w.start(here, sleeper(&attempts, nil))
	other := w.pod(here, "other", func(p *corev1.Pod) { p.Labels["app"] = "other" })
	w.begins(other)
	p := w.pod(here, "web")
	w.sleepPolicy("sleep")
	w.begins(p)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonSlept, "")
	if _, asleep := a.node.AsleepPod(string(other.UID)); asleep || attempts.Load() != 1 {
		t.Errorf("the other pod sleeps: %v; %d attempts", asleep, attempts.Load())
	}
}

// TestEndWithoutWaking: a pod is woken to be ended only if its policy says so.
func TestEndWithoutWaking(t *testing.T) {
	for _, without := range []bool{true, false} {
		w := newWorld(t)
		var attempts atomic.Int64
		here := w.node("a")
		a := w.start(here, sleeper(&attempts, nil))
		p := w.pod(here, "web")
		policy := w.sleepPolicy("sleep", func(s *sleepv1alpha1.SleepPolicySpec) {
			if !without {
				s.EndWithoutWaking = &without
			}
		})
		if e := policy.Spec.EndWithoutWaking; e == nil || *e != without {
			t.Errorf("the API server has made it %v, want %v", e, without)
		}
		w.begins(p)
		w.awaitSleepEvent(p, podsnapshotv1.ReasonSlept, "")
		if a.node.wakeToEnd.Load() == without {
			t.Errorf("endWithoutWaking %v: woken to be ended: %v", without, !without)
		}
	}
}

// TestSleepPolicyReady: the agent knows whether a pod is to be ready when it sleeps, by default, after a change of the
// policy, and when the policy is gone.
func TestSleepPolicyReady(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	a := w.start(here, sleeper(&attempts, nil))
	policy := w.sleepPolicy("sleep", late)
	p := w.pod(here, "web")
	w.begins(p)
	await := func(want ready.Wish) {
		t.Helper()
		if err := w.eventually(func(context.Context) error {
			if is := a.node.wish(string(p.UID)); is != want {
				return fmt.Errorf("wish is %q, want %q", is, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	await(ready.Auto)
	for _, r := range []sleepv1alpha1.Readiness{sleepv1alpha1.ReadyAlways, sleepv1alpha1.ReadyNever} {
		edit(w, policy, func(p *sleepv1alpha1.SleepPolicy) { p.Spec.Ready = r })
		await(ready.Wish(r))
	}
	w.delete(policy)
	await(ready.Auto)
}

// TestSleepPolicyDryRun: an event says what would have happened. When the policy no longer only says so, it happens.
func TestSleepPolicyDryRun(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	w.start(here, sleeper(&attempts, nil))
	policy := w.sleepPolicy("sleep", dryRun)
	p := w.pod(here, "web")
	w.begins(p)
	w.awaitSleepEvent(p, sleepv1alpha1.ReasonWouldSleep, "SleepPolicy sleep")
	if attempts.Load() != 0 {
		t.Error("the pod was put to sleep")
	}
	edit(w, policy, func(p *sleepv1alpha1.SleepPolicy) { p.Spec.DryRun = false })
	w.awaitSleepEvent(p, podsnapshotv1.ReasonSlept, "")
}

// TestSleepPoliciesClash: a pod that two policies select stays awake, and an event and their conditions say so. When
// one of them is gone, it sleeps.
func TestSleepPoliciesClash(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	w.control()
	w.start(here, sleeper(&attempts, nil))
	one, two := w.sleepPolicy("one"), w.sleepPolicy("two")
	for _, p := range []*sleepv1alpha1.SleepPolicy{one, two} {
		until(w, p, func(p *sleepv1alpha1.SleepPolicy) error {
			return is(p.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
				sleepv1alpha1.ReasonOverlapping)
		})
	}
	p := w.pod(here, "web")
	w.begins(p)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonStaysAwake, "several SleepPolicies select it: one, two")
	if attempts.Load() != 0 {
		t.Error("the pod was put to sleep")
	}
	w.delete(two)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonSlept, "")
	until(w, one, func(p *sleepv1alpha1.SleepPolicy) error {
		return is(p.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue, sleepv1alpha1.ReasonValid)
	})
}

// TestNetAdminNeverSleeps: a pod with a container that may change the pod's network is not put to sleep, neither by
// policy nor by annotation. One event for each says so, also if the policy has dryRun.
func TestNetAdminNeverSleeps(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	w.start(here, sleeper(&attempts, nil))
	w.sleepPolicy("sleep", dryRun)
	p := w.pod(here, "web", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "fw", Image: "fw:1", SecurityContext: &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}},
		}}}
	})
	w.begins(p)
	why := fmt.Sprintf("The pod stays awake: pod %s/web never sleeps: its container fw has NET_ADMIN", w.ns)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonStaysAwake, why)
	edit(w, p, func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationSleep, "now")
	})
	until(w, p, func(p *corev1.Pod) error {
		s := podsnapshotv1.ParseSleepStatus(p.Annotations)
		if s.State != podsnapshotv1.SleepFailed || !strings.Contains(s.Message, "never sleeps") {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	n, err := w.sleepEvents(t.Context(), p, podsnapshotv1.ReasonStaysAwake, "")
	would, err2 := w.sleepEvents(t.Context(), p, sleepv1alpha1.ReasonWouldSleep, "")
	if n > 2 || would > 0 || attempts.Load() > 0 || errors.Join(err, err2) != nil {
		t.Errorf("%d and %d events, %d attempts; %v, %v", n, would, attempts.Load(), err, err2)
	}
}

// TestSleepPolicyUnfit: a pod that cannot be saved says so once.
func TestSleepPolicyUnfit(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	w.start(here, sleeper(&attempts, errors.New("it has a terminal")))
	w.sleepPolicy("sleep")
	p := w.pod(here, "web")
	w.begins(p)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonStaysAwake, "it has a terminal")
	if n, err := w.sleepEvents(t.Context(), p, podsnapshotv1.ReasonStaysAwake, ""); n != 1 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
	if attempts.Load() != 1 {
		t.Errorf("%d attempts", attempts.Load())
	}
}
