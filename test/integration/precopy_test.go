package integration

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/test/workload/answers"
)

// TestPrecopy: a pod that writes to its memory all the time is saved with nearly all of it stored before the pause,
// once and again, and then stopped. Each snapshot has every page as it was in the pause, and little is copied in it.
func TestPrecopy(t *testing.T) {
	n := start(t, "--precopy-from=1", "--arena=33554432")
	p := n.workload("busy", "serve", "--mib=96")
	before := n.serving(p)
	n.post(p, "/dirty?mib_per_s=20")
	names := []string{"first", "second", "last"}
	for _, name := range names {
		args := []string{"busy", "--name=" + name}
		if name == "last" {
			args = append(args, "--stop")
		}
		s := n.checkpoint(args...)
		if s.Overflow > 0 {
			t.Errorf("%s: %d bytes went to a file in the pause", name, s.Overflow)
		}
		if name != "last" {
			n.alive(p, before)
		}
	}
	if out := n.mustCLI("verify", "--read-data"); out == "" {
		t.Error("verify says nothing")
	}
	for _, name := range names {
		b := n.restore(name, "--name=from-"+name)[0]
		if st := n.serving(b); st.Boot != before.Boot {
			t.Errorf("%s is at %+v, the origin was at %+v", name, st, before)
		}
		n.verify(b)
		n.eventually("it still writes", func() error {
			var v answers.Memory
			if err := n.get(b, "/verify", &v); err != nil || !v.OK {
				return fmt.Errorf("%+v: %w", v, err)
			}
			return nil
		})
		if err := n.bed.RemovePod(n.ctx, b.ID); err != nil {
			t.Error(err)
		}
	}
}

// TestAgentKilledPrecopy: an agent that dies, or a client that goes away, while memory is stored before the pause,
// leaves the pod as it was. What was stored goes with the next sweep, and later checkpoints succeed. So they do if the
// agent is killed with the pod paused, after a pre-copy.
func TestAgentKilledPrecopy(t *testing.T) {
	at := newPlace(t)
	flags := at.flags("--precopy-from=1")
	n := start(t, flags...)
	p := n.workload("survivor", "serve", "--mib=256")
	before := n.serving(p)
	for _, stage := range []string{"precopy", "capture", "spool"} {
		for _, stop := range []bool{false, true} {
			err := n.during(stage, request(p, stop), n.agent.Kill)
			if status.Code(err) != codes.Unavailable {
				t.Errorf("killed at %s, stop: %v: %v", stage, stop, err)
			}
			if stage == "precopy" || !stop {
				n.alive(p, before) // needs no agent for that
			}
			n.startAgent(flags...)
			n.alive(p, before)
			n.settled(at)
		}
	}
	n.interrupt("precopy", "checkpoint", "survivor", "--name=interrupted")
	n.alive(p, before)
	n.settled(at)
	n.mustCLI("gc", "--grace=0s")
	s := n.checkpoint("survivor", "--name=last")
	n.verify(n.restore(s.Name, "--name=branch")[0])
	n.unharmed(p, before)
}

// TestPrecopyDiskFull: a disk that is full before the pause, in its midst or after it fails the checkpoint, says so,
// and the pod runs on.
func TestPrecopyDiskFull(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.state, "size=6m")
	flags := at.flags("--disk-floor=0", "--precopy-from=1")
	n := start(t, flags...)
	p := n.workload("full", "serve", "--mib=32")
	before := n.serving(p)
	for _, after := range []string{"--stop=false", "--stop"} {
		n.refused([]string{"no space left", at.state}, "checkpoint", after, "full")
		n.alive(p, before)
	}
	n.resize(at.state, "size=512m")
	n.verify(n.restore(n.checkpoint("full").Name, "--name=branch")[0])
	n.unharmed(p, before)
	n.settled(at)
}
