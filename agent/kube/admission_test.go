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

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// late has a policy wait for an hour until it puts a pod to sleep.
func late(s *sleepv1alpha1.SleepPolicySpec) { s.IdleAfter = "1h" }

// awaitAsleep waits until the pod's condition Asleep has this reason.
func (w *world) awaitAsleep(pod *corev1.Pod, reason string, says ...string) {
	w.t.Helper()
	until(w, pod, func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == podsnapshotv1.ConditionAsleep && c.Reason == reason &&
				strings.Contains(c.Message, strings.Join(says, "")) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v, want the reason %s", p.Status.Conditions, reason)
	})
}

// TestWaitsForMemory: a pod whose wake waits says so, once, and what for.
func TestWaitsForMemory(t *testing.T) {
	w := newWorld(t)
	here := w.node("a")
	a := w.start(here)
	p := w.pod(here, "web")
	uid, since := string(p.UID), time.Now() // one sleep: another one would be another event
	is := func(asleep bool, waits, reason string) {
		t.Helper()
		a.node.mu.Lock()
		a.node.asleep, a.node.waits = map[string]time.Time{}, map[string]string{}
		if asleep {
			a.node.asleep[uid] = since
		}
		if waits != "" {
			a.node.waits[uid] = waits
		}
		a.node.mu.Unlock()
		a.Waits(refOf(p))
		w.awaitAsleep(p, reason)
	}
	is(true, "", podsnapshotv1.ReasonSlept)
	is(true, "it needs 300 MiB", podsnapshotv1.ReasonWaitsForMemory)
	is(true, "it needs 200 MiB", podsnapshotv1.ReasonWaitsForMemory)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonWaitsForMemory, "it needs 300 MiB")
	is(true, "", podsnapshotv1.ReasonSlept)
	is(false, "", podsnapshotv1.ReasonWoke)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonWoke, "")
	for _, reason := range []string{podsnapshotv1.ReasonSlept, podsnapshotv1.ReasonWaitsForMemory} {
		if n, err := w.sleepEvents(t.Context(), p, reason, ""); n != 1 || err != nil {
			t.Errorf("%d events %s, %v", n, reason, err)
		}
	}
}

// TestWakeFailed: a pod that could not be woken is not said to have woken. An event warns, and says why.
func TestWakeFailed(t *testing.T) {
	w := newWorld(t)
	here := w.node("a")
	a := w.start(here)
	p := w.pod(here, "web")
	if _, err := a.node.fallAsleep(t.Context(), string(p.UID)); err != nil {
		t.Fatal(err)
	}
	w.awaitAsleep(p, podsnapshotv1.ReasonSlept)
	a.node.mu.Lock()
	clear(a.node.asleep)
	a.node.mu.Unlock()
	a.WakeFailed(refOf(p), errors.New("no such file: app.log"))
	w.awaitAsleep(p, podsnapshotv1.ReasonWakeFailed)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonWakeFailed, "no such file: app.log")
	if n, err := w.sleepEvents(t.Context(), p, podsnapshotv1.ReasonWoke, ""); n != 0 || err != nil {
		t.Errorf("%d events say that it woke, %v", n, err)
	}
}

// TestSleepsOn: a pod that could not be woken and sleeps on is said to sleep. An event warns, and the condition says
// why, also if that changes.
func TestSleepsOn(t *testing.T) {
	w := newWorld(t)
	here := w.node("a")
	a := w.start(here)
	p := w.pod(here, "web")
	if _, err := a.node.fallAsleep(t.Context(), string(p.UID)); err != nil {
		t.Fatal(err)
	}
	fails := func(why string) {
		a.node.mu.Lock()
		a.node.unwoken = map[string]string{string(p.UID): why}
		a.node.mu.Unlock()
		a.SleepsOn(refOf(p))
	}
	for _, why := range []string{"no such file: app.log", "no such file: app.log", "no such file: app.db"} {
		fails(why)
		w.awaitAsleep(p, podsnapshotv1.ReasonWakeFailed, "sleeps on, and its wake is retried: "+why)
	}
	w.awaitSleepEvent(p, podsnapshotv1.ReasonWakeFailed, "no such file: app.log")
	a.node.mu.Lock()
	a.node.unwoken = nil
	a.node.mu.Unlock()
	a.node.wake(string(p.UID))
	w.awaitAsleep(p, podsnapshotv1.ReasonWoke)
}

// TestReadyIsShown: the condition of a pod that sleeps says whether it is ready to wake. That is no event.
func TestReadyIsShown(t *testing.T) {
	w := newWorld(t)
	here := w.node("a")
	a := w.start(here)
	p := w.pod(here, "web")
	if _, err := a.node.fallAsleep(t.Context(), string(p.UID)); err != nil {
		t.Fatal(err)
	}
	for _, ready := range []bool{false, true, false} {
		a.node.mu.Lock()
		a.node.ready = map[string]bool{string(p.UID): ready}
		a.node.mu.Unlock()
		a.SleepsOn(refOf(p))
		if ready {
			w.awaitAsleep(p, podsnapshotv1.ReasonSlept, "is saved and ready to wake")
		} else {
			w.awaitAsleep(p, podsnapshotv1.ReasonSlept, "is saved and uses no memory")
		}
	}
	if n, err := w.sleepEvents(t.Context(), p, podsnapshotv1.ReasonSlept, ""); n > 1 || err != nil {
		t.Errorf("%d events say that it sleeps, %v", n, err)
	}
}

// TestMakesRoom: an idle pod that a policy selects may be put to sleep before its time, and an event says why.
func TestMakesRoom(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	a := w.start(here, sleeper(&attempts, nil))
	w.sleepPolicy("sleep", late)
	p := w.pod(here, "web")
	w.begins(p)
	if err := w.eventually(func(context.Context) error {
		if all := a.Idle(); len(all) != 1 || all[0].Pod.UID != string(p.UID) || all[0].Memory == 0 {
			return fmt.Errorf("idle: %+v", all)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.PutToSleep(t.Context(), refOf(p)); err != nil {
		t.Fatal(err)
	}
	w.awaitSleepEvent(p, podsnapshotv1.ReasonMadeRoom, "before its time")
	w.awaitSleepEvent(p, podsnapshotv1.ReasonSlept, "")
	if err := a.PutToSleep(t.Context(), refOf(p)); err == nil || attempts.Load() != 1 {
		t.Errorf("again: %v, %d attempts", err, attempts.Load())
	}
}

// TestHostileMakesRoom: no pod is put to sleep for others against its own namespace's will: without a policy, with one
// that only says what it would do, or with two.
func TestHostileMakesRoom(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int64
	here := w.node("a")
	a := w.start(here, sleeper(&attempts, errors.New("none may sleep")))
	dry := w.sleepPolicy("dry", late, dryRun)
	unselected := w.pod(here, "other", func(p *corev1.Pod) { p.Labels["app"] = "other" })
	p := w.pod(here, "web")
	w.begins(unselected)
	w.begins(p)
	refused := func() {
		t.Helper()
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if all := a.Idle(); len(all) > 0 {
				t.Fatalf("may be put to sleep: %+v", all)
			}
		}
		if err := a.PutToSleep(t.Context(), refOf(unselected)); err == nil || attempts.Load() > 0 {
			t.Errorf("error %v, %d attempts", err, attempts.Load())
		}
	}
	refused()
	edit(w, dry, func(p *sleepv1alpha1.SleepPolicy) { p.Spec.DryRun = false })
	w.sleepPolicy("second", late)
	w.awaitSleepEvent(p, podsnapshotv1.ReasonStaysAwake, "several SleepPolicies select it")
	refused()
}
