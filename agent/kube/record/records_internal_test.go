package record

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// TestReportedBegins: the time for which a request has its turn does not pass before anybody can act on it. One that
// has ended long ago has no turn.
func TestReportedBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := newReported(), snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}
		request := func(name string, stage journal.Stage) journal.Request {
			return journal.Request{ID: name, Key: snapshot.Key{Namespace: "n", Name: name}, Pod: pod, Stage: stage}
		}
		ended, first, second := request("ended", journal.StageReplicated), request("first", journal.StageSpooled),
			request("second", journal.StageSpooled)
		r.Load([]journal.Request{ended, first, second})
		const turn = 30 * time.Second
		time.Sleep(turn)
		if before := r.Before(second, turn); len(before) != 0 {
			t.Errorf("before the turn of the second: %v", before)
		}
		r.Begin()
		if before := r.Before(second, turn); len(before) != 1 || before[0] != first.Key {
			t.Errorf("at the begin, before the turn of the second: %v", before)
		}
	})
}

// TestJobsOfAPod: one job at a time captures a pod. It gives the pod free when its snapshot is spooled, or when it
// ends, and stays until its answer was seen.
func TestJobsOfAPod(t *testing.T) {
	js, pod := newJobs(), snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}
	first := &Job{Asker: NewAsker("n", "first"), Pod: pod, Plan: &rules.Plan{Policy: "first"}}
	second := &Job{Asker: NewAsker("n", "second"), Pod: pod}
	if !js.Add(first) || js.Add(first) || js.Add(second) || !js.Busy("u") {
		t.Error("a pod is captured for two jobs")
	}
	if js.Plan("u") != nil {
		t.Error("its turn has not come")
	}
	k := snapshot.Key{Namespace: "n", Name: "s"}
	js.Named(first, k)
	if p := js.Plan("u"); p != first.Plan {
		t.Errorf("plan %+v", p)
	}
	if js.Captured(k) != first || js.Captured(k) != nil || js.Busy("u") || !js.Done(first.Asker) {
		t.Error("the pod is not free")
	}
	if !js.Add(second) {
		t.Error("the next job is not taken")
	}
	if js.Close(first.Asker) {
		t.Error("it has not ended")
	}
	if got := js.End(first, nil); got != k {
		t.Errorf("ended %s", got)
	}
	if _, ok := js.Of(first.Asker); ok {
		t.Error("it is kept although its answer was seen")
	}
	failure := errors.New("no")
	js.End(second, failure)
	if s, ok := js.Of(second.Asker); !ok || s.Spooled || !errors.Is(s.Err, failure) {
		t.Errorf("the second: %+v, %v", s, ok)
	}
	js.Gone(Requester{}, Asker{})
	if _, ok := js.Of(second.Asker); ok {
		t.Error("it is kept although nobody asks any more")
	}
}

// TestSnapshotIsFoundAgain: after a restart of the agent, a request's snapshot keeps the name that it was given, and
// the pod is free once the journal or the ledger says so.
func TestSnapshotIsFoundAgain(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	clock := names.NewClock(time.Now)
	job := &Job{Asker: NewAsker("n", "asks"), Pod: snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}}
	before, err := Open(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	if k := before.KeyOf(job.Asker); k != (snapshot.Key{}) || before.Over(job.Asker) {
		t.Errorf("found %s before there is any", k)
	}
	name, err := before.Name(job, clock)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := Open(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	k := snapshot.Key{Namespace: "n", Name: name}
	if again, err := rs.Name(job, clock); err != nil || again != name || !job.Asker.Made(k) {
		t.Errorf("named %s, then %s: %v", name, again, err)
	}
	if !rs.Knows(k) || rs.Over(job.Asker) {
		t.Error("it is over, or unknown")
	}
	rs.Reported.Put(journal.Request{ID: "1", Key: k, Stage: journal.StageSpooled})
	if !rs.Over(job.Asker) {
		t.Error("a spooled snapshot is not over")
	}
	rs.Reported.Drop(journal.Request{ID: "1", Key: k})
	e, _ := rs.Ledger.Get(k)
	if e.Published = "uid"; rs.Ledger.Put(e) != nil || !rs.Over(job.Asker) {
		t.Error("a published snapshot is not over")
	}
}
