package restore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/runsc/sleep"
	"diapause.dev/storage"
)

// prepareWake prepares the wake of a pod, and marks that it sleeps.
func (a *rig) prepareWake(t *testing.T) (request, dir string) {
	t.Helper()
	pod := snapshot.PodRef{Namespace: "n", Name: "pod", UID: "uid"}
	request, dir, err := a.PrepareWake(t.Context(), snapshots.ID{Key: saved}, pod, "sandbox")
	if err != nil {
		t.Fatal(err)
	}
	if err := (sleep.Mark{Sandbox: "sandbox", UID: "uid", Since: time.Now()}).Write(dir); err != nil {
		t.Fatal(err)
	}
	return request, dir
}

// TestWakeIsKept: while a pod sleeps, its request and its snapshot stay, also over a restart of the agent. Nobody waits
// for it to load. Once it is awake, an agent that finds no sidecar of it takes the restore for done.
func TestWakeIsKept(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, dir := a.prepareWake(t)
	for range 2 {
		if waited, err := a.Await(t.Context(), "sandbox", func(int64, int64) {}); waited || err != nil {
			t.Errorf("waited %v, %v", waited, err)
		}
		if _, _, loading := a.Loading("sandbox"); loading {
			t.Error("a pod that sleeps is loading")
		}
		if pod := a.Needed(saved, "one"); pod != "n/pod" {
			t.Errorf("pod %q needs the snapshot", pod)
		}
		if pod := a.Needed(saved, "another"); pod != "" {
			t.Errorf("pod %q needs another snapshot", pod)
		}
		if !a.Readers.Using(saved) {
			t.Error("nobody holds the snapshot")
		}
		a.next(t)
		a.HoldAsleep(t.Context())
	}
	r, err := a.registry.find(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if !r.revived || a.registry.orphan(r) {
		t.Errorf("revived %v, an orphan %v", r.revived, a.registry.orphan(r))
	}
	if err := sleep.Unmark(dir); err != nil {
		t.Fatal(err)
	}
	if !a.registry.orphan(r) || a.Needed(saved, "") != "" {
		t.Error("the snapshot is held for a pod that is awake")
	}
}

// TestAsleepKeepsNothingDecoded: of the memory of a pod that sleeps the agent keeps nothing, also after a restart,
// until the pod may wake.
func TestAsleepKeepsNothingDecoded(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, _ := a.prepareWake(t)
	reader := func() *snapshots.Reader {
		t.Helper()
		_, err := a.registry.find(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		s, err := a.Readers.Open(t.Context(), snapshots.ID{Key: saved, UID: "one"}, "") // shared with the restore
		if err != nil {
			t.Fatal(err)
		}
		a.Readers.Release(s)
		return s
	}
	wantCold := func(who string) {
		t.Helper()
		cold := false
		if reader().PrefetchOnce(func() { cold = true }); !cold {
			t.Errorf("%s has prefetched for a pod that sleeps", who)
		}
	}
	m, err := a.stores.Spool().Manifest(t.Context(), saved)
	if err == nil {
		err = a.stores.Spool().PutWorkingSet(t.Context(), m, storage.NewReader(m).Locate(runsc.StateFile, 0, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantCold("the agent")
	a.next(t)
	a.HoldAsleep(t.Context())
	wantCold("the next agent")
	a.next(t)
	a.HoldAsleep(t.Context())
	s := reader()
	s.Far = a.stores.Spool() // has the working set
	a.Admit(request)
	for end := time.Now().Add(time.Minute); !s.Has(runsc.StateFile, 0, 1); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a pod that may wake has nothing prefetched")
		}
	}
}

// TestSleepsOn: a pod sleeps on its snapshot until a sandbox may have got a byte of it, from this agent or another one.
func TestSleepsOn(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, dir := a.prepareWake(t)
	for range 2 {
		want := snapshots.ID{Key: saved, UID: "one"}
		if id, ok := a.SleepsOn("sandbox"); !ok || id != want {
			t.Errorf("it sleeps on %v, %v", id, ok)
		}
		if id, ok := a.SleepsOn("another"); ok {
			t.Errorf("another one sleeps on %v", id)
		}
		a.next(t)
	}
	served := flock.New(filepath.Join(dir, sidecar.OptionsFile), flock.SetFlag(os.O_RDONLY))
	if err := served.RLock(); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.SleepsOn("sandbox"); ok {
		t.Error("its sidecar runs, and it sleeps")
	}
	if err := served.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := a.registry.find(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.feed(a.reminders); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.SleepsOn("sandbox"); ok {
		t.Error("it has got a byte, and sleeps")
	}
}

// TestDropWake ends what was prepared for a pod that did not fall asleep.
func TestDropWake(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, _ := a.prepareWake(t)
	a.DropWake(request, errors.New("a packet came"))
	if all, err := a.Requests.All(); err != nil || len(all) > 0 || a.Readers.Using(saved) {
		t.Errorf("left: %v, %v, in use: %v", all, err, a.Readers.Using(saved))
	}
	if _, _, err := a.PrepareWake(t.Context(), snapshots.ID{Key: saved, UID: "other"},
		snapshot.PodRef{Namespace: "n", Name: "pod"}, "sandbox"); !errors.Is(err, errkind.ErrReplaced) {
		t.Errorf("another snapshot is taken: %v", err)
	}
}

// TestRetryWake: after a wake has failed, the pod sleeps on and another wake is prepared, under the same agent or the
// next one. If the snapshot is why, or nobody knows it, there is none.
func TestRetryWake(t *testing.T) {
	failure := errors.New("no such file: app.log")
	for name, c := range map[string]struct {
		fed, unserved, next, forgotten bool
		reason                         error // of the restore's end
		hopeless                       bool
	}{
		"not begun":              {},
		"begun":                  {fed: true},
		"ended":                  {fed: true, unserved: true, reason: errkind.ErrSandboxExited},
		"damaged":                {fed: true, unserved: true, reason: storage.ErrCorrupt, hopeless: true},
		"next agent":             {fed: true, next: true},
		"ended, next agent":      {fed: true, unserved: true, reason: errkind.ErrSandboxExited, next: true},
		"forgotten, next agent":  {fed: true, unserved: true, next: true, forgotten: true, hopeless: true},
		"unreachable for a time": {fed: true, reason: storage.ErrUnavailable, unserved: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, request, _ := newSleepyRig(t)
			a.Admit(request)
			r, err := a.registry.find(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			if c.fed {
				if err := r.feed(a.reminders); err != nil {
					t.Fatal(err)
				}
			}
			if !c.forgotten {
				a.unwake(t)
			}
			if c.unserved {
				a.finish(r, c.reason)
			}
			if c.next {
				a.next(t)
			}
			since := time.Unix(5, 0)
			retry := func() (string, error, error) {
				return a.RetryWake(t.Context(), request, "sandbox", sleepy, since, failure)
			}
			dir, why, err := retry()
			if c.reason != nil && !c.hopeless && !c.next && (!errors.Is(why, c.reason) || !errors.Is(why, failure)) {
				t.Errorf("it says %q, and the agent knew %q", why, c.reason)
			}
			if Hopeless(err) != c.hopeless || (err != nil) != c.hopeless {
				t.Fatalf("%q, %v", dir, err)
			}
			if c.hopeless {
				return
			}
			if m, ok := sleep.Marked(dir); !ok || m.Sandbox != "sandbox" || m.UID != "uid" || !m.Since.Equal(since) {
				t.Errorf("mark %+v, %v", m, ok)
			}
			if all := a.config.Marks.All(); len(all) != 1 || filepath.Base(dir) == request {
				t.Errorf("asleep %+v, by %s", all, dir)
			}
			if again, _, err := retry(); again != dir || err != nil {
				t.Errorf("asked again: %s instead of %s, %v", again, dir, err)
			}
			if id, ok := a.SleepsOn("sandbox"); !ok || id.UID != "one" {
				t.Errorf("it sleeps on %+v, %v", id, ok)
			}
			next, err := a.registry.find(t.Context(), filepath.Base(dir))
			if err == nil {
				err = next.feed(a.reminders)
			}
			if err != nil || a.remembered(t) {
				t.Errorf("it cannot be woken: %v", err)
			}
		})
	}
}

// TestHostileRetryWake: a shim does not get the snapshot of another pod, or of another sandbox.
func TestHostileRetryWake(t *testing.T) {
	a, _, _, dir := newSleepyRig(t)
	if err := sleep.Unmark(dir); err != nil {
		t.Fatal(err)
	}
	a.unwake(t)
	other := sleepy
	other.Name = "other"
	for _, c := range []struct {
		sandbox string
		pod     snapshot.PodRef
	}{{"sandbox", other}, {"another", sleepy}} {
		if dir, _, err := a.RetryWake(t.Context(), "no-such", c.sandbox, c.pod, time.Now(), errors.New("x")); !Hopeless(err) {
			t.Errorf("sandbox %s of pod %s: %q, %v", c.sandbox, c.pod, dir, err)
		}
	}
}
