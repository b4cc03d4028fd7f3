package integration

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
)

// TestAgentKilled kills the agent by SIGKILL at every step of a checkpoint. The next agent must find
// no sandbox paused, or not leave it so, and bring what was begun to an end.
func TestAgentKilled(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("survivor", "serve", "--mib", "128")
	before := n.serving(p)
	pid := n.sentry(p)
	killedAt := func(stage string) func(*localv1.CheckpointRequest, func()) error {
		return func(r *localv1.CheckpointRequest, kill func()) error { return n.during(stage, r, kill) }
	}
	slow := func(r *localv1.CheckpointRequest, kill func()) error {
		return n.duringCapture(r, func() { n.freezeSentry(pid); kill() })
	}
	steps := []struct {
		name   string
		reach  func(r *localv1.CheckpointRequest, kill func()) error
		paused bool // by a --stop
	}{
		{"prepare", killedAt("prepare"), false},
		{"asked", killedAt("capture"), true},
		{"captured in part", n.duringCapture, true},
		{"captured in part, sandbox slow", slow, true},
		{"spooled in part", killedAt("spool"), true},
	}
	for _, step := range steps {
		for _, stop := range []bool{false, true} {
			t.Logf("killed at: %s, stop: %v", step.name, stop)
			err := step.reach(request(p, stop), func() {
				n.agent.Kill()
				n.signal(pid, syscall.SIGCONT)
			})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("killed at: %s, stop: %v: %v", step.name, stop, err)
			}
			if !stop {
				n.alive(p, before) // needs no agent for that
			} else if paused := n.paused(p); step.paused && !paused {
				t.Errorf("killed at: %s: the sandbox is not paused; was the agent killed there?", step.name)
			}
			n.startAgent(at.flags()...)
			n.alive(p, before)
			n.settled(at)
		}
	}
	n.unharmed(p, before)
}

// TestAgentKilledQueued kills the agent when a request that it has accepted waits for its turn. The
// request is in the journal by then, and the next agent ends it: it failed, and says so.
func TestAgentKilledQueued(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("busy", "serve", "--mib", "256")
	before := n.serving(p)
	var queued string
	err := n.during("prepare", request(p, false), func() {
		queued = n.accepted(&localv1.CheckpointRequest{Target: p.ID, Name: "queued"})
		n.agent.Kill()
	})
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if r := n.inJournal(at, queued); r.Stage != "accepted" {
		t.Errorf("the journal has %+v of the request that waited", r)
	}
	n.startAgent(at.flags()...)
	n.settled(at)
	if r := n.inJournal(at, queued); r.Stage != "failed" || r.Error == "" {
		t.Errorf("the journal has %+v of the request that waited", r)
	}
	n.unharmed(p, before)
}

// accepted asks for a checkpoint and returns the id under which it is accepted.
func (n *node) accepted(req *localv1.CheckpointRequest) string {
	n.Helper()
	stream, err := n.client().Checkpoint(n.ctx, req)
	if err != nil {
		n.Fatal(err)
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			n.Fatal(err)
		}
		if id := e.GetAccepted(); id != "" {
			return id
		}
	}
}

// inJournal returns what the journal has of a request.
func (n *node) inJournal(at place, id string) record {
	n.Helper()
	for _, r := range n.journal(at) {
		if r.ID == id {
			return r
		}
	}
	return record{}
}

// paused reports whether a pod's sandbox is paused. Containerd says that it runs while it is paused by a lease, so
// runsc is asked. What has no sandbox, since it sleeps, is not paused.
func (n *node) paused(p *bed.Pod) bool {
	n.Helper()
	paused, err := bed.Paused(p.ID)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.Error(err)
	}
	return paused
}

// TestAgentKilledSpooled kills the agent when the snapshot is safe on the node, but the sandbox is
// not yet stopped, as far as the agent knows: nothing has run in it since, so the next agent ends it. If the agent has
// asked containerd for that already, containerd does so when it goes on, and the next agent finds it ended.
func TestAgentKilledSpooled(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("ends", "serve", "--mib", "128")
	before := n.serving(p)
	err := n.during("spool", request(p, true), func() {
		n.signal(n.bed.Containerd.PID(), syscall.SIGSTOP) // so that the agent cannot end it
		defer n.signal(n.bed.Containerd.PID(), syscall.SIGCONT)
		n.eventually("snapshot is safe", func() error {
			for _, r := range n.journal(at) {
				if r.Stage == "spooled" && !r.Stopped {
					return nil
				}
			}
			return errors.New("no request of the journal is spooled")
		})
		n.agent.Kill()
	})
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if !n.paused(p) {
		t.Log("the sandbox is not paused any more")
	}
	n.startAgent(at.flags()...)
	if codes := n.ended(p); !slices.Equal(codes, []int32{137}) {
		t.Errorf("exit codes %d", codes)
	}
	n.settled(at)
	if r := n.journal(at); len(r) != 1 || !r[0].Stopped || r[0].Stage != "replicated" {
		t.Errorf("journal: %+v", r)
	}
	b := n.restore(n.only(at), "--name=again")[0]
	if st := n.serving(b); st.Boot != before.Boot {
		t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
	}
	n.unharmed(b, before)
}

// only returns the name of the one snapshot in the spool.
func (n *node) only(at place) string {
	n.Helper()
	names, err := filepath.Glob(filepath.Join(at.state, "spool", "default", "snapshots", "*"))
	if err != nil || len(names) != 1 {
		n.Fatalf("snapshots %q, %v", names, err)
	}
	return filepath.Base(names[0])
}

// TestAgentKilledReplicating kills the agent when snapshots are on the node alone: the next agent
// replicates them.
func TestAgentKilledReplicating(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.store, "size=1m")
	at.makeStore(t)
	n := start(t, at.flags()...)
	stays, ends := n.workload("stays", "serve", "--mib", "8"), n.workload("ends", "serve", "--mib", "8")
	before := n.serving(stays)
	n.serving(ends)
	n.mustCLI("checkpoint", "--no-wait", "--name=one", stays.ID)
	n.mustCLI("checkpoint", "--no-wait", "--name=two", "--stop", ends.ID)
	n.agent.Kill()
	n.alive(stays, before)
	if codes := n.ended(ends); !slices.Equal(codes, []int32{137}) {
		t.Errorf("exit codes %d", codes)
	}
	n.resize(at.store, "size=512m")
	n.startAgent(at.flags()...)
	n.settled(at)
	for _, name := range []string{"one", "two"} {
		if s := n.snapshot(name); !s.Replicated {
			t.Errorf("snapshot %+v", s)
		}
	}
	n.unharmed(stays, before)
	n.verify(n.restore("two", "--name=again")[0])
}

// TestAgentKilledAsOthersName kills the agent while two sandboxes are to be saved under one name:
// the snapshot of the one must not pass for that of the other.
func TestAgentKilledAsOthersName(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	a, b := n.workload("first", "serve", "--mib", "8"), n.workload("second", "serve", "--mib", "128")
	n.serving(a)
	before := n.serving(b)
	pid := n.sentry(b)
	req := request(b, true)
	req.Name = "same"
	err := n.duringCapture(req, func() {
		n.freezeSentry(pid)
		n.mustCLI("checkpoint", "--name=same", a.ID)
		n.agent.Kill()
		n.signal(pid, syscall.SIGCONT)
	})
	if err == nil {
		t.Error("both have the name")
	}
	n.startAgent(at.flags()...)
	n.alive(b, before)
	n.settled(at)
	n.unharmed(b, before)
}
