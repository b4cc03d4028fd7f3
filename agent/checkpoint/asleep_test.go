package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// ofSleep is the snapshot on which the rig's pod sleeps.
var ofSleep = snapshots.ID{Key: snapshot.Key{Namespace: "default", Name: "of-sleep"}, UID: "of-sleep"}

// sleeping are the sleeps of a rig whose pod sleeps.
type sleeping struct {
	*rig
	waking bool // a wake is under way
}

// Asleep implements Sleeps.
func (s *sleeping) Asleep(sandbox string) bool {
	s.sandbox.mu.Lock()
	defer s.sandbox.mu.Unlock()
	return sandbox == sandboxID && s.sandbox.asleep
}

// SleepsOn implements Sleeps.
func (s *sleeping) SleepsOn(sandbox string) (snapshots.ID, bool) {
	return ofSleep, s.Asleep(sandbox) && !s.waking
}

// Wake implements Sleeps.
func (s *sleeping) Wake(context.Context, string) error {
	return s.runtime.held("wake", func() error {
		s.sandbox.asleep, s.sandbox.ran, s.waking = false, true, false
		return nil
	})
}

// asleepRig returns a rig whose pod sleeps.
func asleepRig(t *testing.T) (*rig, *sleeping) {
	t.Helper()
	r := newRig(t)
	r.put(ofSleep.Key, ofSleep.UID)
	s := &sleeping{rig: r}
	r.sandbox.asleep = true
	r.with(func(c *Config) { c.Sleeps = s })
	return r, s
}

// TestCheckpointAsleep saves a pod that sleeps: it is not woken, and its snapshot has the packs of that of its sleep.
// If it is to be stopped, it ends in its sleep.
func TestCheckpointAsleep(t *testing.T) {
	for _, stop := range []bool{false, true} {
		t.Run(fmt.Sprint("stop ", stop), func(t *testing.T) {
			r, s := asleepRig(t)
			request, found, err := r.save(saving{stop: stop}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r.settled()
			r.isSound()
			first, err := r.Stores.Spool().Manifest(t.Context(), ofSleep.Key)
			if err != nil {
				t.Fatal(err)
			}
			m := found.Manifest
			if !found.Replicated || m.Meta.UID == ofSleep.UID || m.Meta.Purpose != snapshot.ForCheckpoint ||
				*m.Meta.Parent != ofSleep.Key || m.Meta.Origin.PodUID != "pod-uid" ||
				!slices.Equal(m.Packs, first.Packs) {
				t.Errorf("it was made from %+v: %+v, replicated: %v", first.Meta, m.Meta, found.Replicated)
			}
			if rec := r.Journal.Get(request); rec.Stopped != stop || rec.CopyOf != ofSleep.UID {
				t.Errorf("the journal says %+v", rec)
			}
			if s.Asleep(sandboxID) == stop || r.sandbox.isKilled() != stop {
				t.Errorf("asleep: %v", s.Asleep(sandboxID))
			}
			r.untouched()
			if err := r.Stores.Spool().Remove(t.Context(), ofSleep.Key); err != nil {
				t.Fatal(err)
			}
			if err := r.Stores.Spool().Verify(t.Context(), m, storage.VerifyOptions{}); err != nil {
				t.Errorf("without the snapshot of the sleep: %v", err)
			}
		})
	}
}

// untouched fails the test if a sandbox was paused, saved or woken.
func (r *rig) untouched() {
	r.t.Helper()
	for _, call := range r.runtime.made() {
		if slices.Contains([]string{"pause", "checkpoint", "wake", "kill", "kill paused", "resume"}, call) {
			r.t.Errorf("calls: %q", r.runtime.made())
			return
		}
	}
}

// TestCheckpointAsleepFaults: whichever call fails, or is the last one of an agent that dies, a pod that is to be
// stopped sleeps on, or has ended and its snapshot is safe.
func TestCheckpointAsleepFaults(t *testing.T) {
	for name, f := range faults {
		more := true
		for n := 1; more && n <= mostCalls; n++ {
			t.Run(fmt.Sprintf("call %d %s", n, name), func(t *testing.T) {
				r, s := asleepRig(t)
				r.runtime.set(n, f)
				survived := survive(func() { r.save(saving{stop: true}, Options{}) })
				if more = r.runtime.hit(n); !more {
					return
				}
				r.runtime.lift()
				if !survived {
					r.next()
					r.with(func(c *Config) { c.Sleeps = s })
					r.Recover(t.Context())
				}
				r.settled()
				r.isSound()
				r.untouched()
				for _, rec := range r.Journal.Records() {
					if safe := r.hasSnapshot(rec); safe == s.Asleep(sandboxID) && rec.RunsOn == "" {
						t.Errorf("the snapshot is safe: %v, and the pod sleeps: %v", safe, s.Asleep(sandboxID))
					}
				}
			})
		}
	}
}

// TestCheckpointMustWake: a pod whose state cannot be copied is woken, and saved as any other.
func TestCheckpointMustWake(t *testing.T) {
	for name, tc := range map[string]struct {
		saving
		prepare func(*rig, *sleeping) error
	}{
		"only its files": {saving{scope: snapshot.RootfsOnly}, func(*rig, *sleeping) error { return nil }},
		"is being woken": {saving{}, func(_ *rig, s *sleeping) error { s.waking = true; return nil }},
		"not on the node": {saving{stop: true}, func(r *rig, _ *sleeping) error {
			return r.Stores.Spool().Remove(r.t.Context(), ofSleep.Key)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := asleepRig(t)
			if err := tc.prepare(r, s); err != nil {
				t.Fatal(err)
			}
			request, found, err := r.save(tc.saving, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r.settled()
			r.isSound()
			meta := found.Manifest.Meta
			if rec := r.Journal.Get(request); rec.CopyOf != "" || rec.Stopped != tc.stop || meta.Parent != nil {
				t.Errorf("the journal says %+v, the snapshot %+v", rec, meta)
			}
			if calls := r.runtime.made(); !slices.Contains(calls, "wake") || !slices.Contains(calls, "checkpoint") {
				t.Errorf("calls: %q", calls)
			}
		})
	}
}

// TestCheckpointWokenMeanwhile wakes a pod that is to be ended in its sleep, once its snapshot is made: it runs on, and
// the caller is told.
func TestCheckpointWokenMeanwhile(t *testing.T) {
	r, s := asleepRig(t)
	r.runtime.before = func(call string) {
		if call == "end asleep" {
			r.runtime.before = nil
			if err := s.Wake(t.Context(), sandboxID); err != nil {
				t.Error(err)
			}
		}
	}
	request, _, err := r.save(saving{stop: true}, Options{})
	if err == nil || !strings.Contains(err.Error(), "was made, but the sandbox was not stopped") {
		t.Errorf("error %v", err)
	}
	r.settled()
	r.isSound()
	if rec := r.Journal.Get(request); rec.Stopped || rec.RunsOn == "" || r.sandbox.isKilled() {
		t.Errorf("the journal says %+v", rec)
	}
	if left, err := os.ReadDir(r.stoppedDir()); err != nil || len(left) > 0 {
		t.Errorf("it is marked as stopped: %v, %v", left, err)
	}
}

// TestCheckpointAsleepLost: an agent that starts does not end a pod that has been woken since its snapshot was made,
// even if it sleeps again.
func TestCheckpointAsleepLost(t *testing.T) {
	for name, copyOf := range map[string]string{"asleep again": "earlier", "still asleep": ofSleep.UID} {
		t.Run(name, func(t *testing.T) {
			r, s := asleepRig(t)
			k := snapshot.Key{Namespace: "default", Name: "made"}
			r.put(k, "made")
			rec := &journal.Record{
				ID: "made", UID: "made", Key: k, Pod: "default/pod", SandboxID: sandboxID, Stop: true, CopyOf: copyOf,
				Stage: journal.StageAccepted,
			}
			if err := r.Journal.Put(rec); err != nil {
				t.Fatal(err)
			}
			r.Recover(t.Context())
			r.settled()
			asleep, got := s.Asleep(sandboxID), r.Journal.Get("made")
			if asleep == (copyOf == ofSleep.UID) || got.Stopped == asleep {
				t.Errorf("asleep: %v, the journal says %+v", asleep, got)
			}
			r.untouched()
		})
	}
}

// TestCheckpointAsleepRefused refuses what cannot be done with a pod that sleeps: nothing is done to it.
func TestCheckpointAsleepRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		o    func(*rig) Options
		want string
	}{
		"to sleep":  {func(r *rig) Options { return Options{Handover: handover{r.runtime}} }, "it sleeps"},
		"its end":   {func(*rig) Options { return Options{Ending: true} }, "it sleeps"},
		"its image": {func(r *rig) Options { r.damage(ofSleep.Key); return Options{} }, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := asleepRig(t)
			_, _, err := r.save(saving{}, tc.o(r))
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, errFault) {
				t.Errorf("error %v", err)
			}
			r.settled()
			r.isSound()
			r.untouched()
			if !s.Asleep(sandboxID) {
				t.Error("it was woken")
			}
		})
	}
}
