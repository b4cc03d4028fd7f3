package lives

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/past"
)

// containerd is a containerd with sandboxes of one pod, the newest first.
type containerd struct {
	ran  []string // in which containers have started
	uids map[string]bool
	err  error
}

func (c *containerd) LastRun(_ context.Context, _, except string) (string, error) {
	for _, id := range c.ran {
		if id != except {
			return id, c.err
		}
	}
	return "", c.err
}

func (c *containerd) UIDs(context.Context) (map[string]bool, error) { return c.uids, c.err }

// api is a cluster with pods on this node.
type api struct {
	uids map[string]bool
	err  error
}

func (a api) PodUIDs(context.Context) (map[string]bool, error) { return a.uids, a.err }

var pod = snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}

// rig is the lives of a node with one pod.
type rig struct {
	*testing.T
	*Lives
	cri *containerd
}

func newRig(t *testing.T) *rig {
	t.Helper()
	j, _ := journaltest.New(t)
	c := &containerd{}
	return &rig{t, New(Config{Dir: t.TempDir(), Runtime: c, Journal: j, Logger: journaltest.Quiet}), c}
}

// restart begins another agent.
func (r *rig) restart() { r.Lives = New(r.Config) }

// try has a sandbox of the pod be restored.
func (r *rig) try(id string) {
	r.Helper()
	before, err := r.Of(r.Context(), pod, id)
	if err != nil {
		r.Fatal(err)
	}
	r.Try(pod, id, before)
}

// sandbox makes a sandbox of the pod: it starts cold, or its restore is complete or fails.
func (r *rig) sandbox(id, how string) {
	r.Helper()
	switch how {
	case "cold":
		r.Start(pod, id)
	case "restored":
		r.try(id)
		r.Complete(pod, id)
	case "failed":
		r.try(id)
	case "undone": // the shim has noted that it was complete, and then that it was not
		r.try(id)
		r.shim(func(n *past.Note) bool { return n.Complete(id) })
		r.shim(func(n *past.Note) bool { return n.Undo(id) })
		r.Complete(pod, id) // the report came late
	case "unanswered": // its shim is of an earlier version, and there was no agent
	default:
		r.Fatalf("sandbox %s: %s", id, how)
	}
	r.cri.ran = append([]string{id}, r.cri.ran...)
	r.restart()
}

func (r *rig) shim(f func(*past.Note) bool) {
	r.Helper()
	n, err := past.Read(r.Dir, pod.UID)
	if err == nil && f(&n) {
		err = n.Write(r.Dir, true)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// wants checks what is known of the pod when its next sandbox is made.
func (r *rig) wants(what string, want Past) {
	r.Helper()
	got, err := r.Of(r.Context(), pod, "next")
	if err != nil || got.Ran != want.Ran || got.Stopped != want.Stopped || (got.Sandbox != "") != got.Ran {
		r.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
	}
}

// TestHasRun: which sandboxes count as runs, over restarts of the agent, also if containerd has forgotten them all.
func TestHasRun(t *testing.T) {
	for _, c := range []struct {
		sandboxes string // how they went, in their order
		ran       bool
		forgotten bool // whether that holds if containerd has forgotten the sandboxes
	}{
		{"", false, true},
		{"cold", true, true},
		{"restored", true, true},
		{"failed", false, true},
		{"failed failed", false, true},
		{"failed cold", true, true},
		{"failed restored failed", true, true},
		{"undone", false, true},
		{"undone restored", true, true},
		{"cold undone", true, true},
		{"unanswered", true, false},
		{"unanswered failed", true, true},
		{"failed unanswered", true, false},
		{"failed unanswered failed", true, true},
	} {
		r := newRig(t)
		for i, how := range strings.Fields(c.sandboxes) {
			r.sandbox(fmt.Sprint("s", i), how)
		}
		r.wants(c.sandboxes, Past{Ran: c.ran})
		r.cri.ran = nil
		r.wants(c.sandboxes+", forgotten", Past{Ran: c.ran && c.forgotten})
	}
}

// TestManyFailed: a pod whose restore has failed more often than is noted has run only if containerd says so, and then
// it starts anew: that is the safe side.
func TestManyFailed(t *testing.T) {
	r := newRig(t)
	for i := range 40 {
		r.sandbox(fmt.Sprint("s", i), "failed")
	}
	r.wants("after many", Past{})
}

// TestLostNote: if a note cannot be read, the pod has run. A containerd that does not answer is an error.
func TestLostNote(t *testing.T) {
	r := newRig(t)
	r.sandbox("s", "failed")
	if err := os.WriteFile(past.Path(r.Dir, pod.UID), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.wants("with an unreadable note", Past{Ran: true})
	r.sandbox("t", "failed")
	r.wants("after it was written anew", Past{Ran: true})
	r.cri.err = errors.New("it is away")
	if _, err := r.Of(t.Context(), pod, "next"); err == nil || !strings.Contains(err.Error(), "n/p") {
		t.Errorf("without containerd: %v", err)
	}
	r.cri.err = nil
	if err := os.RemoveAll(r.Dir); err != nil {
		t.Fatal(err)
	}
	r.cri.ran = nil
	r.sandbox("w", "cold")
	r.wants("though nothing can be noted", Past{Ran: true})
	if got, err := r.Of(t.Context(), snapshot.PodRef{}, "w"); err != nil || got.Ran {
		t.Errorf("a pod without a UID: %+v, %v", got, err)
	}
}

// TestStopped: a sandbox that Diapause has ended after a checkpoint is restored from that snapshot, also if the first
// try fails, until the pod has run again. One that runs on, or whose checkpoint has failed, is not.
func TestStopped(t *testing.T) {
	r := newRig(t)
	stop := journaltest.Record(1, journal.StagePaused)
	stop.SandboxID, stop.Stop = "s0", true
	journaltest.Put(t, r.Journal, stop)
	r.sandbox("s0", "cold")

	ctx, cancel := context.WithTimeout(t.Context(), 2*stopPoll)
	defer cancel()
	if _, err := r.Of(ctx, pod, "next"); !errors.Is(err, errUnsettled) || !strings.Contains(err.Error(), "s0") {
		t.Errorf("while it is being stopped: %v", err)
	}
	stop.Stopped, stop.Stage = true, journal.StageReplicated
	settled := time.AfterFunc(2*stopPoll, func() { journaltest.Put(t, r.Journal, stop) })
	defer settled.Stop()
	want := Past{Ran: true}
	want.Stopped.Key, want.Stopped.UID = stop.Key, stop.UID
	r.wants("after it was stopped", want)

	r.sandbox("s1", "failed")
	r.wants("after a restore from it that has failed", want)
	r.sandbox("s2", "restored")
	r.wants("after one that has not", Past{Ran: true})

	for i, edit := range []func(*journal.Record){
		func(r *journal.Record) { r.RunsOn = "the agent ended" },
		func(r *journal.Record) { r.Stage = journal.StageFailed },
		func(r *journal.Record) { r.Stop, r.Stage = false, journal.StageSpooled },
		func(r *journal.Record) { r.SandboxID, r.Stopped = "s1", true },
	} {
		rec := journaltest.Record(10+i, journal.StageReplicated)
		rec.SandboxID, rec.Stop = "s2", true
		edit(rec)
		journaltest.Put(t, r.Journal, rec)
		r.wants(fmt.Sprintf("record %d", i), Past{Ran: true})
	}
}

// TestClean: notes of pods that neither containerd nor the cluster knows are removed, once they are old. If that is not
// known, they stay. There are at most maxNotes.
func TestClean(t *testing.T) {
	r := newRig(t)
	old := time.Now().Add(-2 * noteGrace)
	write := func(uid string, at time.Time) {
		t.Helper()
		ref := pod
		ref.UID = uid
		r.Start(ref, "s")
		if err := os.Chtimes(past.Path(r.Dir, uid), at, at); err != nil {
			t.Fatal(err)
		}
	}
	left := func(what string, want ...string) {
		t.Helper()
		r.Clean(t.Context())
		for _, uid := range []string{"gone", "new", "sandbox", "pod"} {
			_, err := os.Lstat(past.Path(r.Dir, uid))
			if kept := strings.Contains(strings.Join(want, " "), uid); kept != (err == nil) {
				t.Errorf("%s: pod %s: %v, want it kept: %v", what, uid, err, kept)
			}
		}
	}
	for _, uid := range []string{"gone", "sandbox", "pod"} {
		write(uid, old)
	}
	write("new", time.Now())
	r.cri.uids = map[string]bool{"sandbox": true}
	r.Cluster = api{err: errors.New("it is away")}
	left("without the API server", "gone", "new", "sandbox", "pod")
	r.Cluster = api{uids: map[string]bool{"pod": true}}
	r.cri.err = errors.New("it is away")
	left("without containerd", "gone", "new", "sandbox", "pod")
	r.cri.err = nil
	left("in a cluster", "new", "sandbox", "pod")
	r.Cluster = nil
	r.cri.uids = map[string]bool{"sandbox": true}
	left("without a cluster", "new", "sandbox")

	temporary := r.Dir + "/.x.json123"
	if err := errors.Join(os.WriteFile(temporary, nil, 0o600), os.Chtimes(temporary, old, old)); err != nil {
		t.Fatal(err)
	}
	write("sandbox", old.Add(-time.Hour)) // the oldest of all
	for i := range maxNotes {
		path := past.Path(r.Dir, fmt.Sprint("u", i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left("with too many")
	entries, err := os.ReadDir(r.Dir)
	if err != nil || len(entries) != maxNotes {
		t.Errorf("%d files, %v, want %d", len(entries), err, maxNotes)
	}
}
