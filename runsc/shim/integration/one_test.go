package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/test/bed"
)

// TestOneShim: one process serves a pod for all its life: its init container, which ends first, a container beside it
// that is started again, and one that comes later. It watches for the OOM killer once.
func TestOneShim(t *testing.T) {
	before := processes(t)
	s := bed.PodSpec{Name: "one", Containers: []bed.Container{{Name: "init", Command: []string{"/bin/true"}}}}
	pod := runPod(t, s)
	err := bed.Until(limited(t), func() error {
		_, err := node.ExitCode(limited(t), pod.Container("init"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string) (id string) {
		t.Helper()
		c := bed.Container{Name: name, Command: []string{"/bin/sleep", "1000"}}
		if err := node.StartContainer(limited(t), pod, s, c); err != nil {
			t.Fatal(err)
		}
		id = pod.Containers[len(pod.Containers)-1].ID
		if out, code, err := node.Exec(limited(t), id, "echo", name); err != nil || code != 0 || out != name+"\n" {
			t.Errorf("exec in %s: %q, %d, %v", name, out, code, err)
		}
		if all, err := bed.Shims(pod.ID); err != nil || len(all) != 1 {
			t.Errorf("with %s, the pod has shims %v, %v", name, all, err)
		}
		if own, err := bed.Shims(id); err != nil || len(own) != 0 {
			t.Errorf("container %s has shims %v, %v", name, own, err)
		}
		return id
	}
	app := start("app")
	side := start("side")
	watched := watches(t, pod.ID)
	if err := node.StopContainer(limited(t), app, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Runtime.RemoveContainer(limited(t), &cri.RemoveContainerRequest{ContainerId: app}); err != nil {
		t.Fatal(err)
	}
	start("app")
	start("debug")
	if n := watches(t, pod.ID); n != watched {
		t.Errorf("two containers more have %d watches for the OOM killer more", n-watched)
	}
	if _, code, err := node.Exec(limited(t), side, "true"); err != nil || code != 0 {
		t.Errorf("the container beside it: %d, %v", code, err)
	}
	removePod(t, pod.ID)
	nothingLeft(t, before)
}

// TestEarlierPod: a container is not started in a pod whose sandbox no shim of this build serves. A shim of its own
// would take the container for a sandbox.
func TestEarlierPod(t *testing.T) {
	dir := t.TempDir()
	config := `{"annotations": {"io.kubernetes.cri.container-type": "container",
		"io.kubernetes.cri.sandbox-id": "earlier"}}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limited(t), "containerd-shim-diapause-v1", "-namespace", "k8s.io",
		"-address", bed.ContainerdSocket, "-id", "late", "start")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TTRPC_ADDRESS="+bed.ContainerdSocket+".ttrpc")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "its sandbox earlier has ended, or was started by another version") {
		t.Errorf("it is started: %v: %s", err, out)
	}
	if pids, err := bed.Shims("late"); err != nil || len(pids) != 0 {
		t.Errorf("it has shims %v, %v", pids, err)
	}
}

// watches returns how many descriptors of a pod's shim tell of something as watches for the OOM killer do: event
// counters with cgroup v1, inotify instances with v2. One of them is the Go runtime's.
func watches(t *testing.T, sandbox string) (n int) {
	t.Helper()
	pids, err := bed.Shims(sandbox)
	if err != nil || len(pids) != 1 {
		t.Fatalf("the pod has shims %v, %v", pids, err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pids[0])
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		to, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err == nil && (strings.Contains(to, "[eventfd]") || strings.Contains(to, "inotify")) {
			n++
		}
	}
	return n
}
