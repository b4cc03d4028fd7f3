package integration

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPausedWithoutAgent kills the agent while a sandbox is paused, and starts no other: the pod goes on
// by itself.
func TestPausedWithoutAgent(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("alone", "serve", "--mib", "128")
	before := n.serving(p)
	err := n.during("spool", request(p, true), func() { n.agent.Kill() })
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if !n.paused(p) {
		t.Error("the sandbox is not paused; was the agent killed too late?")
	}
	n.alive(p, before)
	n.startAgent(at.flags()...)
	n.settled(at)
	n.alive(p, before)
}

// TestLeaseRunsOut stops the agent while a sandbox is paused, for longer than the lease lasts: the pod
// has gone on since it was saved, and is not stopped.
func TestLeaseRunsOut(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("late", "serve", "--mib", "128")
	before := n.serving(p)
	err := n.during("spool", request(p, true), func() {
		n.signal(n.agent.PID(), syscall.SIGSTOP)
		defer n.signal(n.agent.PID(), syscall.SIGCONT)
		n.alive(p, before)
	})
	if err == nil || !strings.Contains(err.Error(), "the sandbox was not stopped") ||
		!strings.Contains(err.Error(), "runs on") {
		t.Errorf("the checkpoint says %v, want that the sandbox was not stopped", err)
	}
	n.alive(p, before)
	n.settled(at)
	if r := n.journal(at); len(r) != 1 || r[0].Stopped {
		t.Errorf("journal: %+v", r)
	}
	b := n.restore(n.only(at), "--name=again")[0]
	n.alive(b, before)
}

// TestUnreadableRecord damages the record of a request whose sandbox is paused: the next agent resumes
// it all the same, and keeps the file.
func TestUnreadableRecord(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("lost", "serve", "--mib", "128")
	before := n.serving(p)
	err := n.during("spool", request(p, true), func() { n.agent.Kill() })
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if !n.paused(p) {
		t.Error("the sandbox is not paused; was the agent killed too late?")
	}
	records, err := filepath.Glob(filepath.Join(at.state, "journal", "*.json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records %q, %v", records, err)
	}
	if err := os.WriteFile(records[0], []byte(`{"id": "`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.startAgent(at.flags()...)
	n.mustCLI("ls")
	if n.paused(p) {
		t.Error("the sandbox is paused when the agent answers")
	}
	n.alive(p, before)
	if _, err := os.Stat(strings.TrimSuffix(records[0], ".json") + ".unreadable"); errors.Is(err, os.ErrNotExist) {
		t.Error("the record is gone")
	}
	n.settled(at)
	n.unharmed(p, before)
}

// TestPausedContainerdKilled kills containerd while a pod is paused that is to be stopped, and starts it again: the
// containerd that starts does not end the pod, of which nothing is saved yet. The agent ends it once everything is.
func TestPausedContainerdKilled(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("kept", "serve", "--mib", "128")
	before := n.serving(p)
	err := n.during("spool", request(p, true), func() {
		n.signal(n.agent.PID(), syscall.SIGSTOP)
		defer n.signal(n.agent.PID(), syscall.SIGCONT)
		n.bed.Containerd.Kill()
		if err := n.bed.Containerd.Start(n.ctx); err != nil {
			t.Fatal(err)
		}
		if !n.paused(p) {
			t.Error("the sandbox is not paused; did containerd start too late?")
		}
		if now := n.find(p.Name); now.ID != p.ID {
			t.Errorf("containerd has %+v", now)
		}
	})
	if err != nil {
		t.Error(err)
	}
	if codes := n.ended(p); !slices.Equal(codes, []int32{137}) {
		t.Errorf("exit codes %d", codes)
	}
	n.settled(at)
	n.alive(n.restore(n.only(at), "--name=again")[0], before)
}
