package checkpoint

import (
	"testing"

	"diapause.dev/agent/journal/journaltest"
)

// TestKillWhoseAnswerIsLost: containerd has ended the sandbox, but its answer is lost. The cluster must not be told
// that the sandbox runs on.
func TestKillWhoseAnswerIsLost(t *testing.T) {
	s := saving{stop: true, leases: true}
	r := savingRig(t, s)
	r.runtime.set(9, fault{after: true})
	_, _, err := r.save(s, Options{})
	if r.runtime.made()[8] != "kill paused" {
		t.Fatal(r.runtime.made())
	}
	t.Log(err)
	r.settled()
	r.isSound()
}

// TestRecoverLeavesWhatRunsOn: a request has given up stopping its sandbox, which runs on. Later a newer request has
// paused the sandbox, and the agent was killed. The older request must neither end nor resume the sandbox.
func TestRecoverLeavesWhatRunsOn(t *testing.T) {
	for _, leases := range []bool{true, false} {
		r := newRig(t)
		r.sandbox.leases = leases
		older, newer := journaltest.Record(1, "spooled"), journaltest.Record(2, "paused")
		older.Stop, newer.Stop = true, true
		older.RunsOn = "it could not be stopped"
		r.put(older.Key, older.UID)
		if leases {
			r.put(newer.Key, newer.UID)
			r.sandbox.set(paused, newer.ID)
		} else {
			r.sandbox.set(paused, "")
			r.sandbox.ran = true // since the older request's snapshot; the newer request has no snapshot yet
		}
		journaltest.Put(t, r.Journal, older, newer)
		r.next()
		r.Recover(t.Context())
		r.isSound()
		if leases && !r.Journal.Get(newer.ID).Stopped {
			t.Errorf("the newer one is %+v", r.Journal.Get(newer.ID))
		}
	}
}

// TestRecoverRanOnAndEnded: if the journal says that a sandbox ran on, and the sandbox has ended since, then it was not
// stopped.
func TestRecoverRanOnAndEnded(t *testing.T) {
	r := newRig(t)
	rec := journaltest.Record(1, "spooled")
	rec.Stop, rec.RunsOn = true, "it could not be stopped"
	r.put(rec.Key, rec.UID)
	r.sandbox.set(exited, "")
	journaltest.Put(t, r.Journal, rec)
	r.next()
	r.Recover(t.Context())
	r.isSound()
}

// TestStaleMarker: the agent is killed after it has written the marker and before the kill, and the lease runs out. The
// sandbox runs on, so the marker must not say that its later exit was wanted.
func TestStaleMarker(t *testing.T) {
	r := newRig(t)
	left{"paused", true, false, "whole", "paused"}.leave(r)
	r.next()
	r.runtime.set(2, fault{kills: true})
	survive(func() { r.Recover(t.Context()) })
	t.Log(r.runtime.made())
	r.sandbox.expire()
	r.next()
	r.Recover(t.Context())
	r.check(left{"paused", true, false, "whole", "ran out"})
}
