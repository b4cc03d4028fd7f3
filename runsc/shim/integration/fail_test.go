package integration

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/cri"
	"diapause.dev/test/bed"
)

// damage copies image files, and cuts one of them to a part of its size. If the part is negative, it leaves the file
// out.
func damage(t *testing.T, dir, file string, part float64) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(to, file)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if part < 0 {
		err = os.Remove(path)
	} else {
		err = os.Truncate(path, int64(part*float64(info.Size())))
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// TestDamagedImage restores from incomplete image files. Whatever gVisor makes of them, nothing hangs: not the shim,
// not the removal of the pod, not a restart of containerd.
func TestDamagedImage(t *testing.T) {
	origin := runPod(t, spec("origin", nil))
	boot, _ := state(t, origin.Container("a"))
	dir := checkpoint(t, origin)
	for _, tc := range []struct {
		file string
		part float64
	}{
		{"checkpoint.img", 0},
		{"checkpoint.img", 0.5},
		{"checkpoint.img", -1},
		{"pages_meta.img", 0},
		{"pages_meta.img", 0.5},
		{"pages_meta.img", -1},
		{"pages.img", 0},
		{"pages.img", 0.5},
		{"pages.img", -1},
	} {
		t.Run(tc.file+" "+strconv.FormatFloat(tc.part, 'g', -1, 64), func(t *testing.T) {
			before := processes(t)
			a := startAgent(t, decide(restoreFrom(damage(t, dir, tc.file, tc.part))))
			began := time.Now()
			_, err := node.RunPod(limited(t), spec("broken", strict))
			took := time.Since(began)
			t.Logf("after %v: %.300v", took, err)
			if err == nil || !strings.Contains(err.Error(), `request "r1"`) || strings.Contains(err.Error(), "goroutine") {
				t.Errorf("error %v, want one that names the request, without a stack", err)
			}
			r := a.report(t)
			if r.GetError() == "" {
				r = a.report(t)
			}
			if r.GetError() == "" || r.GetRequest() != "r1" {
				t.Errorf("report: %v", r)
			}
			nothingLeft(t, before)
		})
	}
	began := time.Now()
	if err := node.Containerd.Restart(limited(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("containerd restarted in %v", time.Since(began))
	startAgent(t, decide(restoreFrom(dir)))
	branch := runPod(t, spec("whole", strict))
	if got, _ := state(t, branch.Container("a")); got != boot {
		t.Errorf("container a is %s, want %s", got, boot)
	}
}

// TestNotCreated: runsc refuses to create sandboxes that are to be restored, before or after the agent has answered.
// The agent is told that they will not come. An agent that takes no reports, or has gone, does not hold up the error.
func TestNotCreated(t *testing.T) {
	resp := restoreFrom(t.TempDir())
	refused := func(a map[string]string) bed.PodSpec {
		a = maps.Clone(a)
		a["dev.gvisor.flag.overlay2"] = "wrong"
		return bed.PodSpec{Name: "refused", Annotations: a}
	}
	for _, tc := range []struct {
		name   string
		answer answer // nil: no agent
		told   bool
	}{
		{"at once", decide(resp), true},
		{"afterwards", later(480*time.Millisecond, resp), true},
		{"deaf", decide(resp), false},
		{"gone", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := processes(t)
			var a *agent
			if tc.answer != nil {
				a = startAgent(t, tc.answer)
			}
			if a != nil && !tc.told {
				a.reports = nil
			}
			pod, err := node.RunPod(limited(t), refused(named))
			if err == nil {
				removePod(t, pod.ID)
			}
			if err == nil || !strings.Contains(err.Error(), "setting flag overlay2") {
				t.Errorf("error %v does not say why", err)
			}
			if tc.told {
				if r := a.report(t); !r.GivenUp || r.Complete || r.SandboxId == "" ||
					!strings.Contains(r.Error, "setting flag overlay2") {
					t.Errorf("the agent was told %v", r)
				}
			}
			nothingLeft(t, before)
		})
	}
}

// stop ends a pod as the agent does after a checkpoint: paused, marked, killed.
func stop(t *testing.T, pod *bed.Pod, mark bool) *cri.Pod {
	t.Helper()
	ctx := limited(t)
	if err := client.Pause(ctx, pod.ID); err != nil {
		t.Fatal(err)
	}
	if mark {
		dir := filepath.Join(filepath.Dir(bed.AgentSocket), "stopped")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, pod.ID), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := client.Get(ctx, pod.ID)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := client.Kill(ctx, p); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed within %v", time.Since(began))
	if p, err = client.Get(ctx, pod.ID); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStopExitStatus(t *testing.T) {
	for _, tc := range []struct {
		name string
		mark bool
		want int32
	}{{"marked", true, 137}, {"unmarked", false, 128}} {
		t.Run(tc.name, func(t *testing.T) {
			before := processes(t)
			pod := runPod(t, spec("stopped", nil))
			state(t, pod.Container("a"))
			p := stop(t, pod, tc.mark)
			if p.Ready || p.SandboxPID != 0 {
				t.Errorf("ready %v, process %d after kill", p.Ready, p.SandboxPID)
			}
			for _, c := range p.Containers {
				if c.State != cri.StateExited || c.ExitCode != tc.want {
					t.Errorf("container %s is %s with status %d, want %d", c.Name, c.State, c.ExitCode, tc.want)
				}
			}
			removePod(t, pod.ID)
			nothingLeft(t, before)
		})
	}
}

// TestShimKilled kills a sandbox's shim. Containerd then ends the sandbox, the pod can be removed, and nothing is
// left.
func TestShimKilled(t *testing.T) {
	before := processes(t)
	pod := runPod(t, spec("orphan", nil))
	state(t, pod.Container("a"))
	pids, err := bed.Shims(pod.ID)
	if err != nil || len(pids) != 1 {
		t.Fatalf("%d shims serve the sandbox, want 1, %v", len(pids), err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, pod.ID)
	removePod(t, pod.ID)
	nothingLeft(t, before)
}

// awaitEnd waits until containerd has noticed that a sandbox is gone.
func awaitEnd(t *testing.T, id string) {
	t.Helper()
	ctx := limited(t)
	for {
		p, err := client.Get(ctx, id)
		if err == nil && !p.Ready {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("sandbox %s: still there: %v", id, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestUnfinishedRestore removes a pod whose last container was never started. GVisor has restored nothing of it.
func TestUnfinishedRestore(t *testing.T) {
	origin := runPod(t, spec("origin", nil))
	state(t, origin.Container("a"))
	dir := checkpoint(t, origin)
	before := processes(t)
	startAgent(t, decide(restoreFrom(dir)))
	half := spec("half", strict)
	half.Containers = half.Containers[:1]
	pod, err := node.RunPod(limited(t), half)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	removePod(t, pod.ID)
	t.Logf("removed in %v", time.Since(began))
	nothingLeft(t, before)
}
