package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
)

// saveRootfs saves a pod's root file systems with runsc itself, and returns the image path.
func saveRootfs(t *testing.T, pod *bed.Pod) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	out, err := exec.CommandContext(limited(t), "runsc", "--root="+bed.RunscRoot,
		"fscheckpoint", "--image-path="+dir, "--leave-running", pod.ID).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// later returns an answer that comes after a delay.
func later(d time.Duration, resp *localv1.AskRestoreResponse) answer {
	return func(context.Context, *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
		time.Sleep(d)
		return resp, nil
	}
}

// TestRootfs restores root file systems. The agent answers before runsc creates the sandbox, while it does so, or
// long after.
func TestRootfs(t *testing.T) {
	origin := runPod(t, spec("origin", nil))
	boot, _ := state(t, origin.Container("a"))
	write := func(c, text string) {
		if out, code, err := node.Exec(limited(t), c, "/bin/sh", "-c", "echo "+text+" > /kept"); err != nil || code != 0 {
			t.Fatal(out, code, err)
		}
	}
	write(origin.Container("a"), "one")
	write(origin.Container("b"), "two")
	resp := &localv1.AskRestoreResponse{
		Decision: localv1.AskRestoreResponse_RESTORE_ROOTFS, ImagePath: saveRootfs(t, origin), Request: "r1",
		Snapshot: "default/s", Containers: 2,
	}
	for name, after := range map[string]time.Duration{
		"at once": 0, "meanwhile": 60 * time.Millisecond,
		"afterwards": 480 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t, later(after, resp))
			before := processes(t)
			pod, err := node.RunPod(limited(t), spec("again", named))
			if err != nil {
				t.Fatal(err)
			}
			for c, want := range map[string]string{"a": "one", "b": "two"} {
				out, _, err := node.Exec(limited(t), pod.Container(c), "cat", "/kept")
				if err != nil || strings.TrimSpace(out) != want {
					t.Errorf("container %s has %q, want %s: %v", c, out, want, err)
				}
			}
			if r := a.report(t); !r.Complete || r.Loaded || r.Error != "" || r.Request != "r1" {
				t.Errorf("first the agent was told %v", r)
			}
			if r := a.report(t); r.Complete || !r.Loaded || r.Error != "" || r.Request != "r1" {
				t.Errorf("then the agent was told %v", r)
			}
			if got, _ := state(t, pod.Container("a")); got == boot {
				t.Error("the process did not start anew")
			}
			terminalIn(t, pod.Container("b"))
			removePod(t, pod.ID)
			nothingLeft(t, before)
		})
	}
}

// terminalIn runs a command at a terminal in a container.
func terminalIn(t *testing.T, container string) {
	t.Helper()
	x, err := node.ExecTerminal(limited(t), container, "/bin/sh", "-c", "echo sho$((0))wn; sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	defer x.Detach()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := x.Shows(ctx, "sho0wn", 1); err != nil {
		t.Error(err)
	}
}

// TestRootfsFails restores root file systems from nothing. The pod does not start, the agent is told, and nothing is
// left.
func TestRootfsFails(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0, "afterwards": 480 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t, later(after, &localv1.AskRestoreResponse{
				Decision: localv1.AskRestoreResponse_RESTORE_ROOTFS, ImagePath: filepath.Join(t.TempDir(), "none"), Request: "r1",
				Containers: 1,
			}))
			before := processes(t)
			pod, err := node.RunPod(limited(t), bed.PodSpec{Name: "again", Annotations: named})
			if err == nil {
				removePod(t, pod.ID)
				t.Fatal("the pod started")
			}
			if !strings.Contains(err.Error(), "fscheckpoint.pb") {
				t.Errorf("the error does not say why: %v", err)
			}
			if r := a.report(t); r.Error == "" || r.Request != "r1" {
				t.Errorf("the agent was told %v", r)
			}
			nothingLeft(t, before)
		})
	}
}
