package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/tools"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// repairedBuild reports whether the bed's runsc is the repaired build.
func repairedBuild(t *testing.T) bool {
	t.Helper()
	var infos [2]os.FileInfo
	for i, name := range []string{"runsc", tools.RunscFast} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if infos[i], err = os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}
	return os.SameFile(infos[0], infos[1])
}

// leftBehind runs a pod whose own program does nothing. A session of exec has left a server behind in it, and ended.
func (n *node) leftBehind(name string) (p *bed.Pod, boot string) {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/sleep", "1000000"}},
	}})
	if err != nil {
		n.Fatal(err)
	}
	const line = "setsid /bin/workload serve --mib=16 >/tmp/log 2>&1 </dev/null &"
	if out, code, err := n.bed.Exec(n.ctx, p.Container("app"), "/bin/sh", "-c", line); err != nil || code != 0 {
		n.Fatalf("exec: %s, %d, %v", out, code, err)
	}
	return p, n.serving(p).Boot
}

// TestLeftBehind has a server that exec has left behind sleep and wake, and restores it twice over. It goes on with its
// memory, and listens. With gVisor's build it is gone after each.
func TestLeftBehind(t *testing.T) {
	n := start(t)
	p, boot := n.leftBehind("origin")
	if !repairedBuild(t) {
		n.warnedOf("kubectl exec has left running", "origin", "--name=one")
		n.lost(n.restore("one", "--name=branch")[0])
		n.checkWhole(p, boot, 16)
		n.asleep(p)
		n.lost(p)
		return
	}
	n.asleep(p)
	n.checkWhole(p, boot, 16)
	n.checkpoint("origin", "--name=one")
	branch := n.restore("one", "--name=branch")[0]
	n.checkWhole(branch, boot, 16)
	n.asleep(branch)
	n.checkWhole(branch, boot, 16)
	n.checkpoint("branch", "--name=two")
	n.checkWhole(n.restore("two", "--name=again")[0], boot, 16)
}

// TestOutputHeld has a program hold the output of the session of exec that it was started by. Once the client has given
// up, the pod sleeps and wakes.
func TestOutputHeld(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib", "8")
	before := n.serving(p)
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	out, code, err := n.bed.Exec(ctx, p.Container("app"), "/bin/sh", "-c", "sleep 1000000 &")
	if status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("exec has ended: %q, %d, %v", out, code, err)
	}
	n.asleep(p)
	n.checkWhole(p, before.Boot, 8)
}

// TestRunningSession checkpoints a pod while somebody sits at a shell in it. The restored pod has neither the shell nor
// what ran in its foreground. What has a session of its own goes on, with the repaired build.
func TestRunningSession(t *testing.T) {
	n := start(t)
	p, boot := n.leftBehind("origin")
	a, err := n.bed.ExecTerminal(n.ctx, p.Container("app"), "/bin/sh", "-c",
		"echo at the she''ll; setsid sleep 1111 & sleep 2222; echo not reached")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Detach)
	if err := a.Shows(n.ctx, "at the shell", 1); err != nil {
		t.Fatal(err)
	}
	all := []string{"/bin/sh -c echo at", "sleep 1111", "sleep 2222"}
	n.eventually("all of it runs", func() error { return n.run(p, all, nil) })
	n.checkpoint("origin", "--name=one")
	branch := n.restore("one", "--name=branch")[0]
	if !repairedBuild(t) {
		n.eventually("all of it has ended", func() error { return n.run(branch, nil, all) })
		return
	}
	n.eventually("the session has ended", func() error { return n.run(branch, all[1:2], []string{all[0], all[2]}) })
	n.checkWhole(branch, boot, 16)
	if err := n.run(p, all, nil); err != nil {
		t.Error(err)
	}
}

// run returns an error unless commands that begin like those of the first list run in a pod, and none of the second.
func (n *node) run(p *bed.Pod, some, none []string) error {
	n.Helper()
	out, code, err := n.bed.Exec(n.ctx, p.Container("app"), "/bin/ps", "-o", "args")
	if err != nil || code != 0 {
		n.Fatalf("ps: %s, %d, %v", out, code, err)
	}
	runs := func(command string) bool { return strings.Contains(out, "\n"+command) } // the first line is a title
	for _, command := range some {
		if !runs(command) {
			return fmt.Errorf("%q does not run in %s: %s", command, p.Name, out)
		}
	}
	if i := slices.IndexFunc(none, runs); i >= 0 {
		return fmt.Errorf("%q runs in %s", none[i], p.Name)
	}
	return nil
}

// warnedOf checkpoints a pod, which warns of something.
func (n *node) warnedOf(what string, args ...string) {
	n.Helper()
	out, err := exec.CommandContext(n.ctx, "diapause", append([]string{"checkpoint"}, args...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), what) {
		n.Errorf("a checkpoint does not warn of %q: %v\n%s", what, err, out)
	}
}

// lost waits until nobody listens in a pod that runs.
func (n *node) lost(p *bed.Pod) {
	n.Helper()
	n.eventually(p.Name+" runs, without the server", func() error {
		if err := n.get(p, "/state", &struct{}{}); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("an answer of %s: %w", p.Name, err)
		}
		return n.run(p, []string{"/bin/sleep 1000000"}, nil)
	})
}
