package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cri"
	"diapause.dev/test/bed"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkpoint saves a pod to image files in a directory of the test's own.
func checkpoint(t *testing.T, pod *bed.Pod) string {
	t.Helper()
	dir := t.TempDir()
	if err := client.Checkpoint(limited(t), pod.ID, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func restoreFrom(dir string) *localv1.AskRestoreResponse {
	return &localv1.AskRestoreResponse{
		Decision: localv1.AskRestoreResponse_RESTORE, ImagePath: dir, Request: "r1", Snapshot: "default/s", Containers: 2,
	}
}

func TestRestoreBranches(t *testing.T) {
	origin := runPod(t, spec("origin", nil))
	bootA, _ := state(t, origin.Container("a"))
	bootB, _ := state(t, origin.Container("b"))
	dir := checkpoint(t, origin)
	_, saved := state(t, origin.Container("a"))

	a := startAgent(t, decide(restoreFrom(dir)))
	for _, name := range []string{"one", "two"} {
		began := time.Now()
		branch := runPod(t, spec(name, map[string]string{"diapause.dev/restore-from": "default/s"}))
		t.Logf("%s runs after %v", name, time.Since(began))
		if r := a.report(t); r.GetError() != "" || !r.GetComplete() || r.GetSandboxId() != branch.ID ||
			r.GetRequest() != "r1" || r.GetSnapshot() != "default/s" {
			t.Errorf("report: %v", r)
		}
		got, n := state(t, branch.Container("a"))
		if got != bootA {
			t.Errorf("container a of %s is %s, want %s", name, got, bootA)
		}
		if n > saved+1000 {
			t.Errorf("container a of %s counts %d, the checkpoint was made at %d", name, n, saved)
		}
		if got, _ := state(t, branch.Container("b")); got != bootB {
			t.Errorf("container b of %s is %s, want %s", name, got, bootB)
		}
		if _, later := state(t, branch.Container("a")); later < n {
			t.Errorf("container a of %s counted %d, then %d", name, n, later)
		}
	}
	if got, _ := state(t, origin.Container("a")); got != bootA {
		t.Errorf("the origin is %s, want %s", got, bootA)
	}
}

// TestRestoreFromRecord makes branches from a recorded pod, as the agent does.
func TestRestoreFromRecord(t *testing.T) {
	origin := runPod(t, spec("origin", nil))
	boot, _ := state(t, origin.Container("b"))
	ctx := limited(t)
	rec, err := client.Record(ctx, origin.ID)
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, decide(restoreFrom(checkpoint(t, origin))))
	for _, name := range []string{"one", "two"} {
		began, at := time.Now(), ""
		branch, err := client.RunRestored(ctx, rec,
			cri.RunOptions{Name: name, Annotations: named, Progress: func(stage string) {
				t.Logf("%6d ms until %s", time.Since(began).Milliseconds(), stage)
				at = stage
			}})
		if err != nil {
			t.Fatalf("at %s: %v", at, err)
		}
		defer removePod(t, branch.ID)
		t.Logf("%6d ms until done", time.Since(began).Milliseconds())
		a.report(t)
		if got, _ := state(t, branch.Containers[1].ID); got != boot {
			t.Errorf("container b of %s is %s, want %s", name, got, boot)
		}
	}
}

// TestRestoreEnded restores a pod whose init container has ended. The init container ends again with status 0, and
// does not run.
func TestRestoreEnded(t *testing.T) {
	shared := t.TempDir()
	withInit := spec("origin", nil)
	init := bed.Container{
		Name: "init", Command: []string{"/bin/sh", "-c", "echo ran >> /shared/runs; exit 0"},
		Mounts: []bed.Mount{{Host: shared, Container: "/shared"}},
	}
	withInit.Containers = append([]bed.Container{init}, withInit.Containers...)
	origin := runPod(t, withInit)
	boot, _ := state(t, origin.Container("a"))
	awaitExit(t, origin.Container("init"))
	answer := restoreFrom(checkpoint(t, origin))
	answer.EndedContainers = []string{"init"}
	a := startAgent(t, decide(answer))

	withInit.Name, withInit.Annotations = "branch", named
	branch := runPod(t, withInit)
	if r := a.report(t); !r.GetComplete() || r.GetAnnotations()["io.kubernetes.cri.sandbox-name"] != "branch" {
		t.Errorf("report: %v", r)
	}
	if code := awaitExit(t, branch.Container("init")); code != 0 {
		t.Errorf("the init container exits with %d", code)
	}
	if got, _ := state(t, branch.Container("a")); got != boot {
		t.Errorf("container a is %s, want %s", got, boot)
	}
	runs, err := os.ReadFile(filepath.Join(shared, "runs"))
	if err != nil || string(runs) != "ran\n" {
		t.Errorf("the init container ran %q, %v", runs, err)
	}
	if _, err := node.Runtime.RemoveContainer(limited(t),
		&criapi.RemoveContainerRequest{ContainerId: branch.Container("init")}); err != nil {
		t.Error(err)
	}
}

// awaitExit returns the exit code of a container once it has exited.
func awaitExit(t *testing.T, id string) int32 {
	t.Helper()
	ctx := limited(t)
	for {
		code, err := node.ExitCode(ctx, id)
		if err == nil {
			return code
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
