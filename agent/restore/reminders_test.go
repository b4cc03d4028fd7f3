package restore

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/sleep"
	"diapause.dev/storage"
)

// sleepy is the pod of these tests.
var sleepy = snapshot.PodRef{Namespace: "n", Name: "pod", UID: "uid"}

// newest is a runtime that knows which of a pod's sandboxes is the newest.
type newest struct {
	id  string
	err error
}

func (n *newest) Newest(context.Context, string, string) (string, error) { return n.id, n.err }

// newSleepyRig returns a rig with a snapshot and a pod that sleeps, and the containerd that it asks.
func newSleepyRig(t *testing.T) (a *rig, containerd *newest, request, dir string) {
	t.Helper()
	a, containerd = newRig(t), &newest{id: "sandbox"}
	a.newest = containerd
	a.next(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, dir = a.prepareWake(t)
	return a, containerd, request, dir
}

// remembered reports whether there is a reminder of the pod.
func (a *rig) remembered(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat(a.reminders.Path("uid"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// reboot has the node be another boot later than the one in which the pod fell asleep.
func (a *rig) reboot(t *testing.T) {
	t.Helper()
	m, err := sleep.ReadReminder(a.reminders.Path("uid"))
	if err != nil {
		t.Fatal(err)
	}
	m.Boot = "another"
	b, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(a.reminders.Path("uid"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// unwake writes, as a shim does, that a pod could not be woken.
func (a *rig) unwake(t *testing.T) {
	t.Helper()
	err := sleep.Reminder{
		Format: sleep.ReminderFormat, Pod: sleepy, Sandbox: "sandbox", Snapshot: saved, UID: "one", Unwoken: true,
	}.Write(a.reminders.Path("uid"))
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnwoken: a pod whose sandbox has ended before it ran, though it had all its memory, is restored once more; not if
// the snapshot is why, or if it was woken after all.
func TestUnwoken(t *testing.T) {
	for name, c := range map[string]struct {
		reason       error
		woken, again bool
		early        bool // its shim says so before it has all its memory
		written      bool // its shim has written that it was not woken
	}{
		"crashed":            {reason: errkind.ErrSandboxExited, again: true},
		"crashed when whole": {again: true},
		"damaged":            {reason: storage.ErrCorrupt},
		"damaged, written":   {reason: storage.ErrCorrupt, written: true},
		"woken":              {woken: true},
		"woken early":        {woken: true, early: true},
		"woken, and crashed": {woken: true, early: true, reason: errkind.ErrSandboxExited},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, request, _ := newSleepyRig(t)
			a.Admit(request)
			r, err := a.registry.find(t.Context(), request)
			if err == nil {
				err = r.feed(a.reminders)
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.early {
				a.Woken(request)
			}
			a.finish(r, c.reason)
			if c.woken && !c.early {
				a.Woken(request)
			}
			if n := len(a.Restores.unwoken.all); (n > 0) == c.woken {
				t.Errorf("%d wakes are kept", n)
			}
			if c.written {
				a.unwake(t)
			}
			if err := a.Unwoken(request, "sandbox", sleepy); err != nil {
				t.Fatal(err)
			}
			choice, again, err := a.Remembered(t.Context(), sleepy, "next")
			if again != c.again || err != nil || again && choice.UID != "one" {
				t.Errorf("restored again: %v, from %+v, %v", again, choice, err)
			}
			if needed := a.Needed(snapshot.Key{Namespace: "n", Name: "s"}, ""); (needed != "") != c.again {
				t.Errorf("the snapshot is needed by %q", needed)
			}
		})
	}
}

// TestUnwokenUnderNextAgent: an agent is killed while a pod wakes, and the sandbox ends before its sidecar has come
// back to the next agent. The pod is restored once more, also if the next agent could not read the snapshot when it
// started.
func TestUnwokenUnderNextAgent(t *testing.T) {
	for name, held := range map[string]bool{"held": true, "snapshot unreadable": false} {
		t.Run(name, func(t *testing.T) {
			a, _, request, _ := newSleepyRig(t)
			a.Admit(request)
			r, err := a.registry.find(t.Context(), request)
			if err == nil {
				err = r.feed(a.reminders)
			}
			if err != nil {
				t.Fatal(err)
			}
			a.next(t)
			if held {
				a.HoldAsleep(t.Context())
			}
			if err := a.Unwoken(request, "sandbox", sleepy); err != nil {
				t.Fatal(err)
			}
			a.Reported(request, "sandbox", errkind.ErrSandboxExited)
			choice, again, err := a.Remembered(t.Context(), sleepy, "next")
			if !again || err != nil || choice.UID != "one" {
				t.Errorf("restored again: %v, from %+v, %v", again, choice, err)
			}
		})
	}
}

// TestUnwokenWithoutAgent: an agent is killed while a pod wakes, and the wake fails before there is another one. Only
// the shim's reminder says so. The pod is restored once more, also if:
//
//   - its shim was killed before it ended the sleep;
//   - the sandbox's sidecar comes back to the next agent;
//   - a later agent hears of the wake, and does not know its request.
func TestUnwokenWithoutAgent(t *testing.T) {
	for name, marked := range map[string]bool{"ended": false, "shim killed": true} {
		t.Run(name, func(t *testing.T) {
			a, _, request, dir := newSleepyRig(t)
			a.Admit(request)
			r, err := a.registry.find(t.Context(), request)
			if err == nil {
				err = errors.Join(a.Remember(request), r.feed(a.reminders))
			}
			if err != nil || a.remembered(t) {
				t.Fatal("the pod is remembered while it wakes", err)
			}
			a.unwake(t)
			if !marked {
				err = sleep.Unmark(dir)
			}
			a.next(t)
			a.HoldAsleep(t.Context())
			a.reminders.Clean(t.Context(), a.Preparing)
			if r, e := a.registry.find(t.Context(), request); err != nil || e != nil || r.feed(a.reminders) == nil {
				t.Error("a sandbox that has ended may get its image", err, e)
			}
			choice, again, err := a.Remembered(t.Context(), sleepy, "next")
			if !again || err != nil || choice.UID != "one" {
				t.Errorf("restored again: %v, from %+v, %v", again, choice, err)
			}
			if pod := a.Needed(saved, "one"); pod != "n/pod" {
				t.Errorf("pod %q needs the snapshot", pod)
			}
			if err := a.Requests.Remove(request); err != nil {
				t.Fatal(err)
			}
			a.next(t)
			if err := a.Unwoken(request, "sandbox", sleepy); err != nil || !a.remembered(t) {
				t.Errorf("an agent that does not know the request forgets it: %v", err)
			}
			next, _, err := a.prepare(t.Context(), choice, sleepy, "next", 0)
			if err == nil {
				err = next.feed(a.reminders)
			}
			if err != nil || a.remembered(t) {
				t.Errorf("its next sandbox is not restored, or it is remembered still: %v", err)
			}
		})
	}
}

// TestRemember: a pod that sleeps is remembered until a sandbox of it gets its first byte, and not any more after that.
func TestRemember(t *testing.T) {
	a, _, request, dir := newSleepyRig(t)
	for range 2 {
		if err := a.Remember(request); err != nil || !a.remembered(t) {
			t.Fatalf("it is not remembered: %v", err)
		}
	}
	if c, again, err := a.Remembered(t.Context(), sleepy, "next"); again || err != nil {
		t.Errorf("without a reboot it is restored from %+v, %v", c, err)
	}
	a.reminders.Clean(t.Context(), a.Preparing)
	if !a.remembered(t) {
		t.Error("a pod that sleeps is forgotten")
	}
	r, err := a.registry.find(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4)
	if err := (&source{rs: a.Restores, restore: r}).ReadAt(t.Context(), runsc.StateFile, 0, p); err != nil {
		t.Fatal(err)
	}
	if a.remembered(t) || string(p) != "page" {
		t.Errorf("its sandbox has got %q, and it is remembered", p)
	}
	if err := a.Remember(request); err != nil || a.remembered(t) {
		t.Errorf("a pod that wakes is remembered: %v", err)
	}
	if err := sleep.Unmark(dir); err != nil {
		t.Fatal(err)
	}
	if err := a.Remember("unknown"); err != nil {
		t.Error(err)
	}
}

// TestRememberOnlyAsleep: a pod that has ended in its sleep meanwhile is not remembered, or forgotten.
func TestRememberOnlyAsleep(t *testing.T) {
	a, _, request, dir := newSleepyRig(t)
	if err := errors.Join(a.Remember(request), sleep.Unmark(dir)); err != nil {
		t.Fatal(err)
	}
	a.reminders.Clean(t.Context(), a.Preparing)
	if a.remembered(t) {
		t.Error("a pod that has ended in its sleep is remembered")
	}
	if err := a.Remember(request); err != nil || a.remembered(t) {
		t.Errorf("it is remembered again: %v", err)
	}
}

// TestRememberLate: an agent remembers what the one before did not get round to.
func TestRememberLate(t *testing.T) {
	a, _, _, _ := newSleepyRig(t)
	a.next(t)
	a.HoldAsleep(t.Context())
	if !a.remembered(t) {
		t.Error("the pod is not remembered")
	}
}

// TestRemembered: after a reboot the pod's next sandbox is restored, unless the pod may have run since, or is another.
func TestRemembered(t *testing.T) {
	a, containerd, request, dir := newSleepyRig(t)
	if err := errors.Join(a.Remember(request), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	a.reboot(t)
	a.next(t)
	want := Choice{Snapshot: saved, UID: "one"}
	c, again, err := a.Remembered(t.Context(), sleepy, "next")
	if !again || err != nil || c.Snapshot != want.Snapshot || c.UID != want.UID || c.Fail {
		t.Errorf("%+v, %v, %v", c, again, err)
	}
	if pod := a.Needed(saved, "one"); pod != "n/pod" {
		t.Errorf("pod %q needs the snapshot", pod)
	}
	if pod := a.Needed(saved, "two"); pod != "" {
		t.Errorf("pod %q needs another snapshot", pod)
	}
	for _, other := range []snapshot.PodRef{{Namespace: "n", Name: "other", UID: "uid"}, {Namespace: "n", Name: "pod"}} {
		if _, again, err := a.Remembered(t.Context(), other, "next"); again || err != nil {
			t.Errorf("%+v is taken for it, %v", other, err)
		}
	}
	containerd.err = errors.New("away")
	if _, again, err := a.Remembered(t.Context(), sleepy, "next"); again || !errors.Is(err, containerd.err) {
		t.Errorf("containerd does not answer: %v, %v", again, err)
	}
	a.reminders.Clean(t.Context(), a.Preparing)
	if !a.remembered(t) {
		t.Error("the pod is forgotten while containerd does not answer")
	}
	containerd.id, containerd.err = "between", nil
	if _, again, err := a.Remembered(t.Context(), sleepy, "next"); again || err != nil {
		t.Errorf("another sandbox has run: %v, %v", again, err)
	}
	a.reminders.Clean(t.Context(), a.Preparing)
	if a.remembered(t) || a.Needed(saved, "") != "" {
		t.Error("a pod that has run since is remembered")
	}
}

// TestRemindersOfARestore: the sandbox that is restored after a reboot is the newest, and ends the reminder with its
// first byte, not before: if it fails, the next one is restored.
func TestRemindersOfARestore(t *testing.T) {
	a, containerd, request, dir := newSleepyRig(t)
	if err := errors.Join(a.Remember(request), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	a.reboot(t)
	a.next(t)
	c, again, err := a.Remembered(t.Context(), sleepy, "next")
	if !again || err != nil {
		t.Fatal(again, err)
	}
	r, _, err := a.prepare(t.Context(), c, sleepy, "next", 0)
	if err != nil {
		t.Fatal(err)
	}
	containerd.id = "next"
	a.reminders.Clean(t.Context(), a.Preparing)
	if !a.remembered(t) {
		t.Error("the pod is forgotten before its sandbox has got anything")
	}
	if err := r.feed(a.reminders); err != nil || a.remembered(t) {
		t.Errorf("the pod is remembered: %v", err)
	}
}

// TestRestoreGivenUp: the sandbox that is to be restored after a wake that has failed is given up before it has got
// anything. The next one is restored in its place. If it was given up later, the pod starts anew.
func TestRestoreGivenUp(t *testing.T) {
	for name, fed := range map[string]bool{"before its first byte": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			a, containerd, request, dir := newSleepyRig(t)
			if err := errors.Join(a.Remember(request), os.RemoveAll(dir)); err != nil {
				t.Fatal(err)
			}
			a.unwake(t)
			a.next(t)
			for _, id := range []string{"second", "third"} {
				c, again, err := a.Remembered(t.Context(), sleepy, id)
				if !again || err != nil {
					t.Fatalf("sandbox %s is restored: %v, %v", id, again, err)
				}
				r, _, err := a.prepare(t.Context(), c, sleepy, id, 0)
				if err != nil {
					t.Fatal(err)
				}
				if containerd.id = id; fed {
					if err := r.feed(a.reminders); err != nil {
						t.Fatal(err)
					}
				}
				if id == "third" {
					a.next(t) // another agent is told
				}
				a.GiveUp(id, errors.New("containerd has ended"))
				if fed {
					break
				}
			}
			if _, again, err := a.Remembered(t.Context(), sleepy, "last"); again == fed || err != nil {
				t.Errorf("the last sandbox is restored: %v, %v", again, err)
			}
			containerd.id = "between"
			if _, again, err := a.Remembered(t.Context(), sleepy, "last"); again || err != nil {
				t.Errorf("another sandbox has run: %v, %v", again, err)
			}
		})
	}
}

// TestForgetFails: a sandbox gets nothing while its pod cannot be forgotten.
func TestForgetFails(t *testing.T) {
	a, _, request, _ := newSleepyRig(t)
	r, err := a.registry.find(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(a.reminders.Path("uid"), "occupied"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.feed(a.reminders); err == nil || r.fed.Load() {
		t.Error("the sandbox may get its image")
	}
}

// TestHostileReminders reads what no agent has written.
func TestHostileReminders(t *testing.T) {
	a, _, _, _ := newSleepyRig(t)
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "{", "[]", `{"boot":"x","pod":{},"snapshot":{"Namespace":"../..","Name":"x"}}`, `{"format":99}`,
		`{"boot":"` + string(make([]byte, 8<<10)) + `"}`,
	} {
		if err := os.WriteFile(a.reminders.Path("uid"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, again, err := a.Remembered(t.Context(), sleepy, "next"); again || err != nil {
			t.Errorf("%.40q: %+v, %v", text, c, err)
		}
		a.reminders.Clean(t.Context(), a.Preparing)
	}
}
