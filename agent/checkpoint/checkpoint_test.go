package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/storage"
)

// saving is a kind of checkpoint.
type saving struct {
	stop      bool
	scope     snapshot.Scope
	leases    bool // the shim knows leases
	storeAway bool
}

func (s saving) String() string {
	return fmt.Sprintf("stop %v, %s, leases %v, store away %v", s.stop, s.scope, s.leases, s.storeAway)
}

// everySaving calls f with each kind of checkpoint whose store is reachable.
func everySaving(t *testing.T, f func(t *testing.T, s saving)) {
	for _, stop := range []bool{false, true} {
		for _, scope := range []snapshot.Scope{snapshot.WholePod, snapshot.RootfsOnly} {
			for _, leases := range []bool{true, false} {
				s := saving{stop: stop, scope: scope, leases: leases}
				t.Run(s.String(), func(t *testing.T) {
					t.Parallel()
					f(t, s)
				})
			}
		}
	}
}

// savingRig returns a rig for a kind of checkpoint.
func savingRig(t *testing.T, s saving) *rig {
	t.Helper()
	r := newRig(t)
	r.sandbox.leases = s.leases
	if s.storeAway {
		r.storeAway = true
		r.next()
	}
	return r
}

// save makes a checkpoint. It also returns the ID of its request.
func (r *rig) save(s saving, o Options) (request string, _ *snapshots.Found, _ error) {
	o.Target, o.Stop, o.Scope = sandboxID, s.stop, s.scope
	if o.Name == "" {
		o.Name = "saved"
	}
	accepted := o.Accepted
	o.Accepted = func(id string) {
		request = id
		if accepted != nil {
			accepted(id)
		}
	}
	found, err := r.Checkpoint(r.t.Context(), r.Life.Context(), o)
	return request, found, err
}

// TestCheckpoint: a sandbox can be saved in each way.
func TestCheckpoint(t *testing.T) {
	everySaving(t, func(t *testing.T, s saving) {
		r := savingRig(t, s)
		var spooled *snapshots.Found
		request, found, err := r.save(s, Options{Spooled: func(f *snapshots.Found, _ string) { spooled = f }})
		if err != nil {
			t.Fatal(err)
		}
		if !found.OnNode || !found.Replicated || spooled == nil ||
			spooled.Manifest.Meta.UID != found.Manifest.Meta.UID {
			t.Errorf("the snapshot is %+v, and was %+v", found, spooled)
		}
		meta := found.Manifest.Meta
		if meta.Scope != s.scope || meta.Origin.Node != "node" || meta.Origin.SandboxID != sandboxID ||
			meta.Origin.Pod != "pod" || meta.Origin.PodUID != "pod-uid" {
			t.Errorf("it says of itself %+v", meta)
		}
		rec := r.Journal.Get(request)
		if rec.Stage != journal.StageReplicated || rec.Stopped != s.stop || rec.RunsOn != "" ||
			r.sandbox.isKilled() != s.stop {
			t.Errorf("the journal says %+v", rec)
		}
		r.wantStages(request, s)
		if r.Sandboxes.Locked(sandboxID) || len(r.Unsettled.List()) > 0 {
			t.Error("the sandbox is still worked on")
		}
		r.isSound()
	})
}

// wantStages checks that the cluster was told about all stages, in order.
func (r *rig) wantStages(request string, s saving) {
	r.t.Helper()
	want := []journal.Stage{journal.StageAccepted, journal.StagePaused, journal.StageSpooled, journal.StageReplicated}
	if !s.stop {
		want = slices.Delete(want, 1, 2)
	}
	var got []journal.Stage
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.told {
		if rec.ID == request {
			got = append(got, rec.Stage)
		}
	}
	if got = slices.Compact(got); !slices.Equal(got, want) {
		r.t.Errorf("the cluster was told %q, want %q", got, want)
	}
}

// TestCheckpointDescends: the next snapshot of a sandbox descends from the one before, if the node still has that one.
func TestCheckpointDescends(t *testing.T) {
	r := newRig(t)
	for i, name := range []string{"one", "two"} {
		_, found, err := r.save(saving{}, Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		parent := found.Manifest.Meta.Parent
		if i == 0 && parent != nil || i == 1 && (parent == nil || parent.Name != "one") {
			t.Errorf("%s descends from %v", name, parent)
		}
	}
	if err := r.Stores.Spool().Remove(t.Context(), snapshot.Key{Namespace: "default", Name: "two"}); err != nil {
		t.Fatal(err)
	}
	_, found, err := r.save(saving{}, Options{Name: "three"})
	if err != nil || found.Manifest.Meta.Parent != nil {
		t.Errorf("descends from what the node no longer has: %v", err)
	}
}

// TestCheckpointStoreAway: if a snapshot is not in its store yet, the caller gets an error, but the request has not
// failed.
func TestCheckpointStoreAway(t *testing.T) {
	for _, stop := range []bool{false, true} {
		s := saving{stop: stop, leases: true, storeAway: true}
		r := savingRig(t, s)
		request, _, err := r.save(s, Options{})
		if !errors.Is(err, errkind.ErrNotReplicated) {
			t.Errorf("stop %v: %v", stop, err)
		}
		rec := r.Journal.Get(request)
		if rec.Stage != journal.StageSpooled || rec.Stopped != stop || rec.Error != "" {
			t.Errorf("the journal says %+v", rec)
		}
		r.isSound()
		_, found, err := r.save(saving{leases: true}, Options{Name: "another", NoWait: true})
		if stop != errors.Is(err, cri.ErrNotRunning) || !stop && (err != nil || found.Replicated || !found.OnNode) {
			t.Errorf("without waiting: %+v, %v", found, err)
		}
	}
}

// TestCheckpointFaults: whichever call of containerd fails, a request is reported as failed if its snapshot is not
// safe, and only then. Afterwards the sandbox runs, or it was stopped and its snapshot is safe.
func TestCheckpointFaults(t *testing.T) {
	everySaving(t, func(t *testing.T, s saving) {
		if s.scope != snapshot.WholePod { // nothing of this depends on the scope
			return
		}
		for name, f := range faults {
			more := true
			for n := 1; more && n <= mostCalls; n++ {
				t.Run(fmt.Sprintf("call %d %s", n, name), func(t *testing.T) { more = saveWith(t, s, n, f) })
			}
		}
	})
}

// saveWith makes a checkpoint with a fault at the n-th call of containerd. It reports whether there was such a call.
func saveWith(t *testing.T, s saving, n int, f fault) bool {
	t.Helper()
	r := savingRig(t, s)
	r.runtime.set(n, f)
	var err error
	survived := survive(func() { _, _, err = r.save(s, Options{}) })
	if !r.runtime.hit(n) {
		return false
	}
	if survived && err == nil && !f.after && r.runtime.made()[n-1] != "end pause" {
		t.Errorf("%s failed unnoticed", r.runtime.made()[n-1])
	}
	r.runtime.lift()
	if !survived {
		r.next()
		r.Recover(t.Context())
	}
	r.settled()
	r.isSound()
	return true
}

// TestCheckpointCrashAndTheLeaseRunsOut: after a crash, the lease runs out before the next agent starts. The sandbox
// may have run meanwhile.
func TestCheckpointCrashAndTheLeaseRunsOut(t *testing.T) {
	s := saving{stop: true, leases: true}
	for _, after := range []bool{false, true} {
		more := true
		for n := 1; more && n <= mostCalls; n++ {
			t.Run(fmt.Sprintf("call %d, after it %v", n, after), func(t *testing.T) {
				r := savingRig(t, s)
				r.runtime.set(n, fault{kills: true, after: after})
				if more = !survive(func() { r.save(s, Options{}) }); !more {
					return
				}
				r.sandbox.expire()
				r.next()
				r.Recover(t.Context())
				r.settled()
				r.isSound()
			})
		}
	}
}

// TestCheckpointJournalFails: a request that cannot be journaled does nothing to the sandbox. If the journal fails
// later, the request goes on, and the journal is brought up to date afterwards.
func TestCheckpointJournalFails(t *testing.T) {
	for _, c := range []struct {
		when string // the journal fails from this call of containerd on
		fail bool   // the request fails, too
	}{{"get", true}, {"paused", true}, {"pause", false}, {"checkpoint", false}, {"kill paused", false}} {
		t.Run(c.when, func(t *testing.T) {
			s := saving{stop: true, leases: true}
			r := savingRig(t, s)
			var mend func()
			r.runtime.before = func(call string) {
				if call == c.when && mend == nil {
					mend = r.breakJournal()
				}
			}
			request, _, err := r.save(s, Options{})
			if (err != nil) != c.fail {
				t.Errorf("the request: %v", err)
			}
			want := exited
			if c.fail {
				want = running
			}
			if now, _ := r.sandbox.now(); now != want {
				t.Errorf("the sandbox is %s, want %s", now, want)
			}
			mend()
			r.settled()
			if c.when == "get" { // nothing of the request is in the journal
				if r.Journal.Get(request) != nil {
					t.Error("it is in the journal")
				}
				return
			}
			r.isSound()
		})
	}
}

// TestCheckpointRefused: a refused request leaves nothing in the journal and does not change the sandbox.
func TestCheckpointRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*rig)
		o       Options
		want    error
	}{
		"no such pod":   {func(r *rig) { r.sandbox.set(gone, "") }, Options{Name: "a"}, cri.ErrNotFound},
		"ended":         {func(r *rig) { r.sandbox.set(exited, "") }, Options{Name: "a"}, cri.ErrNotRunning},
		"other runtime": {func(r *rig) { r.sandbox.other = true }, Options{Name: "a"}, cri.ErrOtherRuntime},
		"bad name":      {func(*rig) {}, Options{Name: "A/b"}, errkind.ErrInvalid},
		"name taken": {func(r *rig) {
			r.put(snapshot.Key{Namespace: "default", Name: "taken"}, "other")
		}, Options{Name: "taken"}, storage.ErrExists},
		"no name": {func(*rig) {}, Options{Named: func() (string, error) { return "", errFault }}, errFault},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.prepare(r)
			before, _ := r.sandbox.now()
			c.o.Target = sandboxID
			_, err := r.Checkpoint(t.Context(), r.Life.Context(), c.o)
			if !errors.Is(err, c.want) {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
			if after, _ := r.sandbox.now(); after != before || len(r.Journal.Records()) > 0 || len(r.told) > 0 ||
				r.Sandboxes.Locked(sandboxID) {
				t.Errorf("the sandbox is %s, the journal has %v, the cluster was told %v", after, r.Journal.Records(),
					r.told)
			}
		})
	}
}

// TestCheckpointOfAPausedSandbox: the agent neither resumes nor stops a sandbox that somebody else has paused.
func TestCheckpointOfAPausedSandbox(t *testing.T) {
	r := newRig(t)
	r.sandbox.set(paused, "")
	s := saving{stop: true}
	request, _, err := r.save(s, Options{})
	if !errors.Is(err, errkind.ErrInvalid) {
		t.Errorf("the error is %v", err)
	}
	if now, _ := r.sandbox.now(); now != paused || r.Journal.Get(request).Stage != journal.StageFailed {
		t.Errorf("the sandbox is %s, the journal says %+v", now, r.Journal.Get(request))
	}
}

// TestCheckpointQueues: a request waits for its sandbox's turn. When its caller gives up, it stops waiting.
func TestCheckpointQueues(t *testing.T) {
	r := newRig(t)
	unlock, err := r.Sandboxes.Lock(t.Context(), sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = r.Checkpoint(ctx, r.Life.Context(), Options{Target: sandboxID, Accepted: func(string) {
		if n := len(r.Journal.Records()); n != 1 {
			t.Errorf("%d requests are journaled once this one is accepted", n)
		}
		cancel(errFault)
	}})
	if !errors.Is(err, errFault) || len(r.Journal.Records()) > 0 {
		t.Errorf("given up: %v, and the journal has %v", err, r.Journal.Records())
	}
	unlock()
	if r.Sandboxes.Locked(sandboxID) {
		t.Error("it still waits")
	}
}

// TestCheckpointFails: a save that fails leaves the sandbox running, and says why.
func TestCheckpointFails(t *testing.T) {
	everySaving(t, func(t *testing.T, s saving) {
		r := savingRig(t, s)
		r.runtime.saves = func() error { return errFault }
		request, _, err := r.save(s, Options{})
		rec := r.Journal.Get(request)
		if !errors.Is(err, errFault) || rec.Stage != journal.StageFailed || !strings.Contains(rec.Error, errFault.Error()) {
			t.Errorf("the error is %v, the journal says %+v", err, rec)
		}
		if now, _ := r.sandbox.now(); now != running {
			t.Errorf("the sandbox is %s", now)
		}
		r.isSound()
	})
}
