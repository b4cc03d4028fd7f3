package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
)

// left is what a killed agent has left: a request, what the request has saved, and the state of its sandbox.
type left struct {
	stage    journal.Stage
	stop     bool
	stopped  bool
	snapshot string
	sandbox  string
}

func (l left) String() string {
	after := "resume"
	if l.stop {
		after = "stop"
	}
	if l.stopped {
		after = "stopped"
	}
	return fmt.Sprintf("%s, %s, snapshot %s, sandbox %s", l.stage, after, l.snapshot, l.sandbox)
}

// requestID is the ID of the request that is left.
const requestID = "0001"

// The states in which a sandbox can be left.
var sandboxes = map[string]func(*sandbox){
	"gone":    func(s *sandbox) { s.set(gone, "") },
	"exited":  func(s *sandbox) { s.set(exited, "") },
	"runs":    func(s *sandbox) { s.set(running, "") },
	"paused":  func(s *sandbox) { s.set(paused, requestID) },
	"ran out": func(s *sandbox) { s.set(paused, requestID); s.expire() },
	"paused without a lease": func(s *sandbox) {
		s.leases = false
		s.set(paused, "")
	},
	"runs without leases": func(s *sandbox) {
		s.leases = false
		s.set(running, "")
	},
	// An agent that knew no leases has paused it, or the lease has run out and then somebody has paused it.
	"paused by another": func(s *sandbox) {
		s.set(paused, "")
		s.ran = true
	},
}

// What a request can have saved.
var saves = map[string]func(*rig, *journal.Record){
	"none":    func(*rig, *journal.Record) {},
	"whole":   func(r *rig, rec *journal.Record) { r.put(rec.Key, rec.UID) },
	"another": func(r *rig, rec *journal.Record) { r.put(rec.Key, "other") },
	"damaged": func(r *rig, rec *journal.Record) {
		r.put(rec.Key, rec.UID)
		r.damage(rec.Key)
	},
}

// possible reports whether an agent can leave this. An agent pauses a sandbox only to stop it, and stops it only after
// it is saved.
func (l left) possible() bool {
	switch {
	case l.stage == journal.StageAccepted:
		// The request has paused nothing. Without a stop it may have saved a snapshot: the journal is written after the
		// snapshot.
		return !l.stopped && !strings.HasPrefix(l.sandbox, "paused") && (l.snapshot != "whole" || !l.stop)
	case l.stage == journal.StagePaused:
		return l.stop && !l.stopped
	case l.stopped:
		return l.stop && (l.sandbox == "gone" || l.sandbox == "exited")
	}
	return l.stop || !strings.HasPrefix(l.sandbox, "paused")
}

// leave puts into a rig what was left.
func (l left) leave(r *rig) *journal.Record {
	r.t.Helper()
	rec := journaltest.Record(1, l.stage)
	rec.SandboxID, rec.Stop, rec.Stopped = sandboxID, l.stop, l.stopped
	saves[l.snapshot](r, rec)
	sandboxes[l.sandbox](r.sandbox)
	journaltest.Put(r.t, r.Journal, rec)
	return rec
}

// end is how a request and its sandbox end.
type end struct {
	safe    bool
	stopped bool
	runsOn  bool
	sandbox state
}

// want returns the end by this rule: a sandbox that the request still keeps paused is stopped if its snapshot is safe,
// and runs on if it is not. Any other sandbox is left as it is, except that it does not stay paused.
func (l left) want() end {
	e := end{safe: l.snapshot == "whole", sandbox: running}
	dead := l.sandbox == "gone" || l.sandbox == "exited"
	if dead {
		e.sandbox = state(l.sandbox)
	}
	ours := l.sandbox == "paused" || l.sandbox == "paused without a lease"
	if e.safe && l.stop && ours {
		e.sandbox = exited
	}
	e.stopped = l.stopped || e.safe && l.stop && (dead || ours)
	e.runsOn = e.safe && l.stop && !e.stopped
	return e
}

// check compares the end of the request that is left with the wanted end.
func (r *rig) check(l left) {
	r.t.Helper()
	r.isSound()
	rec, want := r.Journal.Get(requestID), l.want()
	state, _ := r.sandbox.now()
	got := end{rec.Stage == journal.StageSpooled, rec.Stopped, rec.RunsOn != "", state}
	if got != want {
		r.t.Errorf("the end is %+v, want %+v", got, want)
	}
	killed := want.sandbox == exited && l.sandbox != "exited"
	if _, err := os.Stat(filepath.Join(r.stoppedDir(), sandboxID)); (err == nil) != killed {
		r.t.Errorf("the marker for the shim: %v, want one: %v", err, killed)
	}
}

// everyLeft calls f with everything that a killed agent can leave.
func everyLeft(t *testing.T, f func(t *testing.T, l left)) {
	for _, stage := range []journal.Stage{journal.StageAccepted, journal.StagePaused, journal.StageSpooled} {
		for snapshot := range saves {
			for sandbox := range sandboxes {
				for _, after := range []struct{ stop, stopped bool }{{}, {true, false}, {true, true}} {
					l := left{stage, after.stop, after.stopped, snapshot, sandbox}
					if l.possible() {
						t.Run(l.String(), func(t *testing.T) {
							t.Parallel()
							f(t, l)
						})
					}
				}
			}
		}
	}
}

// TestRecover: the next agent ends each request that was cut short.
func TestRecover(t *testing.T) {
	everyLeft(t, func(t *testing.T, l left) {
		r := newRig(t)
		l.leave(r)
		r.next()
		r.Recover(t.Context())
		if n := len(r.Unsettled.List()); n > 0 {
			t.Errorf("%d requests are not settled", n)
		}
		r.check(l)
		before, calls := r.Journal.Records(), len(r.runtime.made())
		r.next() // once more: nothing is done twice
		r.Recover(t.Context())
		r.check(l)
		if after := r.Journal.Records(); after[0].Stage != before[0].Stage || after[0].RunsOn != before[0].RunsOn {
			t.Errorf("after %d calls %+v, and then %+v", calls, before[0], after[0])
		}
	})
}

// TestRecoverSaysWhatIsDamaged: if the manifest of a snapshot is damaged, the error of its request says so.
func TestRecoverSaysWhatIsDamaged(t *testing.T) {
	r := newRig(t)
	left{journal.StageSpooled, false, false, "damaged", "runs"}.leave(r)
	r.next()
	r.Recover(t.Context())
	if rec := r.Journal.Get(requestID); !strings.Contains(rec.Error, "manifest") {
		t.Errorf("the journal says %q", rec.Error)
	}
}

// TestRecoverNameless: a request that was left before it had a name has no snapshot, and fails.
func TestRecoverNameless(t *testing.T) {
	r := newRig(t)
	rec := journaltest.Record(1, journal.StageAccepted)
	rec.Key.Name = ""
	journaltest.Put(t, r.Journal, rec)
	r.next()
	r.Recover(t.Context())
	if got := r.Journal.Get(rec.ID); got.Stage != journal.StageFailed || got.Error == "" {
		t.Errorf("the journal says %+v", got)
	}
	r.isSound()
}

// TestRecoverLeavesWhatHasEnded: nothing is owed for requests that have ended.
func TestRecoverLeavesWhatHasEnded(t *testing.T) {
	r := newRig(t)
	journaltest.Put(t, r.Journal, journaltest.Record(1, journal.StageReplicated), journaltest.Record(2,
		journal.StageFailed))
	r.sandbox.set(paused, "an operator")
	r.next()
	r.Recover(t.Context())
	if now, _ := r.sandbox.now(); now != paused || len(r.told) > 0 || len(r.runtime.made()) > 0 {
		t.Errorf("the sandbox is %s, the cluster was told %v, containerd was asked %q", now, r.told, r.runtime.made())
	}
}

// TestRecoverSpoolUnreadable: while the disk does not say whether a snapshot is there, its request does not end. Its
// sandbox is neither ended nor resumed.
func TestRecoverSpoolUnreadable(t *testing.T) {
	r := newRig(t)
	l := left{journal.StagePaused, true, false, "whole", "paused"}
	rec := l.leave(r)
	path := r.manifest(rec.Key)
	if err := os.Rename(path, path+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path); err != nil { // reading it fails
		t.Fatal(err)
	}
	r.next()
	r.Recover(t.Context())
	if now, _ := r.sandbox.now(); now != paused || !r.Unsettled.Has(rec.ID) || len(r.told) > 0 {
		t.Errorf("the sandbox is %s; still to be settled: %v; the cluster was told %+v", now,
			r.Unsettled.Has(rec.ID), r.told)
	}
	if got := r.Journal.Get(rec.ID); got.Stage != journal.StagePaused {
		t.Errorf("the journal says %+v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"-away", path); err != nil {
		t.Fatal(err)
	}
	r.settled()
	r.check(l)
}

// TestRecoverMarkerUnwritable: the marker tells the shim that the end of a sandbox is wanted. If it cannot be written,
// the sandbox is not ended.
func TestRecoverMarkerUnwritable(t *testing.T) {
	r := newRig(t)
	l := left{journal.StagePaused, true, false, "whole", "paused"}
	l.leave(r)
	r.next()
	if err := os.Remove(r.stoppedDir()); err != nil {
		t.Fatal(err)
	}
	r.Recover(t.Context())
	if now, _ := r.sandbox.now(); now != paused || !r.Unsettled.Has(requestID) {
		t.Errorf("the sandbox is %s; still to be settled: %v", now, r.Unsettled.Has(requestID))
	}
	if err := os.Mkdir(r.stoppedDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	r.settled()
	r.check(l)
}

// TestMarkerSaysCompleted: the marker tells the shim which exit status the containers get.
func TestMarkerSaysCompleted(t *testing.T) {
	for completed, want := range map[bool]string{true: "0", false: ""} {
		r := newRig(t)
		rec := left{journal.StagePaused, true, false, "whole", "paused"}.leave(r)
		rec.Completed = completed
		journaltest.Put(t, r.Journal, rec)
		r.next()
		r.Recover(t.Context())
		got, err := os.ReadFile(filepath.Join(r.stoppedDir(), sandboxID))
		if err != nil || string(got) != want {
			t.Errorf("completed %v: %q, %v", completed, got, err)
		}
	}
}

// TestCleanMarkers: a marker stays as long as containerd knows its sandbox, or does not answer.
func TestCleanMarkers(t *testing.T) {
	r := newRig(t)
	markers := func() string {
		entries, err := os.ReadDir(r.stoppedDir())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	for _, id := range []string{sandboxID, "old"} {
		if err := os.WriteFile(filepath.Join(r.stoppedDir(), id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.runtime.at, r.runtime.on = 1, true
	r.CleanMarkers(t.Context())
	if got := markers(); got != "old "+sandboxID {
		t.Errorf("while containerd does not answer %q are left", got)
	}
	r.runtime.lift()
	r.CleanMarkers(t.Context())
	if got := markers(); got != sandboxID {
		t.Errorf("%q are left", got)
	}
	if err := os.RemoveAll(r.stoppedDir()); err != nil {
		t.Fatal(err)
	}
	r.CleanMarkers(t.Context()) // the error is logged
}

// TestRecoverTwoOfOneSandbox: settling an older request does not end the pause of a newer one.
func TestRecoverTwoOfOneSandbox(t *testing.T) {
	r := newRig(t)
	older, newer := journaltest.Record(0, journal.StageAccepted), journaltest.Record(1, journal.StagePaused)
	newer.Stop = true
	newer.Key = snapshot.Key{Namespace: "default", Name: "newer"}
	r.put(newer.Key, newer.UID)
	r.sandbox.set(paused, newer.ID)
	journaltest.Put(t, r.Journal, older, newer)
	r.next()
	r.Recover(t.Context())
	if got := r.Journal.Get(newer.ID); !got.Stopped || r.sandbox.lives() {
		t.Errorf("the newer one is %+v", got)
	}
	r.isSound()
}
