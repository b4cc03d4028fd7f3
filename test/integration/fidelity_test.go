package integration

import (
	"fmt"
	"net/http"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// progressed fails unless every check of now is well and further than in then.
func (n *node) progressed(p *bed.Pod, then []answers.Check) (now []answers.Check) {
	n.Helper()
	was := make(map[string]int64)
	for _, c := range then {
		was[c.Check] = c.Progress
	}
	n.eventually(p.Name+": every check goes on", func() error {
		now = nil
		if err := n.get(p, "/report", &now); err != nil {
			return err
		}
		for _, c := range now {
			if !c.OK {
				n.Fatalf("%s: check %s: %s", p.Name, c.Check, c.Detail)
			}
			if c.Progress <= was[c.Check] {
				return fmt.Errorf("check %s stands at %d", c.Check, c.Progress)
			}
		}
		if len(now) != len(was) && len(was) > 0 {
			return fmt.Errorf("%d checks, there were %d", len(now), len(was))
		}
		return nil
	})
	return now
}

// TestFidelity freezes processes, threads, files, connections and timers, and brings them back:
// each checks itself all the time, and nothing may be lost or repeated.
func TestFidelity(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "fidelity")
	then := n.progressed(p, nil)
	if len(then) < 10 {
		t.Fatalf("only %d checks: %+v", len(then), then)
	}
	s := n.checkpoint("origin")
	n.progressed(p, then)
	var before answers.State
	if err := n.get(p, "/state", &before); err != nil {
		t.Fatal(err)
	}
	branches := n.restore(s.Name, "--count=2", "--name=branch")
	for _, b := range branches {
		n.progressed(b, then)
		var st answers.State
		if err := n.get(b, "/state", &st); err != nil || st.Boot != before.Boot ||
			fmt.Sprint(st.Env) != fmt.Sprint(before.Env) {
			t.Errorf("branch %s: %+v, origin %+v: %v", b.Name, st, before, err)
		}
	}
	t.Run("exit code", func(t *testing.T) { n.exitCode(branches[1]) })
	t.Run("a branch of a branch", func(t *testing.T) {
		s := n.checkpoint(branches[0].ID, "--name=second")
		if s.Parent == "" {
			t.Error("the snapshot names no parent")
		}
		n.progressed(n.restore("second")[0], then)
	})
}

// exitCode ends a restored pod's container as a kubelet does: the workload exits with 42.
func (n *node) exitCode(p *bed.Pod) {
	n.Helper()
	if err := n.bed.StopContainer(n.ctx, p.Container("app"), 20); err != nil {
		n.Fatal(err)
	}
	n.eventually("the container has exited", func() error {
		code, err := n.bed.ExitCode(n.ctx, p.Container("app"))
		if err == nil && code != 42 {
			log, _ := n.bed.Logs(n.ctx, p.Container("app")) // says what it waited for
			n.Fatalf("exit code %d, want 42\n%s", code, log)
		}
		return err
	})
}

// TestOneInstant checkpoints a writer that dirties memory in order at full speed: the image must
// be one instant of it. So it must if nearly all of it is stored before the pause.
func TestOneInstant(t *testing.T) {
	for name, flags := range map[string][]string{"copied": nil, "stored before": {"--precopy-from=1"}} {
		t.Run(name, func(t *testing.T) { oneInstant(start(t, flags...)) })
	}
}

func oneInstant(n *node) {
	p := n.workload("origin", "order", "--mib=64")
	var v answers.Order
	n.eventually("the writer writes", func() error {
		if err := n.get(p, "/verify", &v); err != nil || v.Round < 3 {
			return fmt.Errorf("round %d: %w", v.Round, err)
		}
		return nil
	})
	for i := range 2 {
		name := fmt.Sprintf("instant-%d", i)
		n.checkpoint("origin", "--name="+name)
		if err := n.get(p, "/verify", &v); err != nil || !v.OK {
			n.Fatalf("origin after checkpoint %d: %+v, %v", i, v, err)
		}
		b := n.restore(name)[0]
		n.eventually("branch answers", func() error { return n.get(b, "/verify", &v) })
		if !v.OK || v.Pages != 64<<8 {
			n.Errorf("branch of checkpoint %d: %+v", i, v)
		}
		n.post(b, "/freeze?on=true")
		if err := n.bed.RemovePod(n.ctx, b.ID); err != nil {
			n.Error(err)
		}
	}
}

func (n *node) post(p *bed.Pod, path string) {
	n.Helper()
	resp, err := bed.Client.Post("http://"+p.IP+":8080"+path, "", nil)
	if err != nil {
		n.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		n.Fatalf("%s: %s", path, resp.Status)
	}
}
