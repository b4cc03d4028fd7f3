package integration

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/test/bed"
)

// filesSaving is the script of a container that has the files of its sandbox saved each time that it
// is told to, and says what came of it.
const filesSaving = `for i in 1 2; do
while [ ! -e /tmp/go$i ]; do usleep 10000; done
exec 3<>/proc/gvisor/fscheckpoint || exit 3
echo 1 >&3 && head -n 1 <&3 > /tmp/new; mv /tmp/new /tmp/result$i; exec 3>&-
done; exec sleep infinity`

// TestWorkloadSavesFiles has a process save the files of its own sandbox, once in its life: pods that
// have them begin anew, and may do the same.
func TestWorkloadSavesFiles(t *testing.T) {
	n := start(t)
	outside := t.TempDir()
	p := n.filesAuthor(map[string]string{ // which are not the pod's to say
		"dev.gvisor.internal.fscheckpoint.path": outside, "dev.gvisor.internal.fscheckpoint.paths": "/nowhere",
	})
	n.sh(p, "app", "head -c 3000000 /dev/urandom > /work && md5sum /work > /sum")
	n.agent.Kill()
	n.startAgent() // the sandbox was created under another one
	n.touch(p, "/tmp/go1")
	if got := n.readFile(p, "/tmp/result1"); got != "resume" {
		t.Errorf("the origin read %q", got)
	}
	s := n.madeOf(p)
	n.touch(p, "/tmp/go2")
	if got := n.readFile(p, "/tmp/result2"); got != "error" {
		t.Errorf("asked a second time, the origin read %q", got)
	}
	b := n.restore(s.Name, "--name=branch")[0]
	n.sh(b, "app", "md5sum -c /sum")
	n.touch(b, "/tmp/go1")
	if got := n.readFile(b, "/tmp/result1"); got != "resume" {
		t.Errorf("the branch read %q", got)
	}
	again := n.restore(n.madeOf(b).Name, "--name=again")[0]
	n.sh(again, "app", "md5sum -c /sum")
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("the pod wrote %v on the node, %v", left, err)
	}
}

// TestWorkloadFilesRefused has a process save its files when the agent cannot: it is told.
func TestWorkloadFilesRefused(t *testing.T) {
	n := start(t)
	shared := t.TempDir()
	n.filesAuthor(nil, bed.Mount{Host: shared, Container: "/tmp"})
	n.bed.Containerd.Kill() // the agent needs it
	if err := os.WriteFile(filepath.Join(shared, "go1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.eventually("the workload is told", func() error {
		got, err := os.ReadFile(filepath.Join(shared, "result1"))
		if err == nil && string(got) != "error\n" {
			t.Fatalf("the workload read %q", got)
		}
		return err
	})
	if err := n.bed.Containerd.Start(n.ctx); err != nil {
		t.Fatal(err)
	}
}

// filesAuthor runs a pod that saves its files.
func (n *node) filesAuthor(annotations map[string]string, mounts ...bed.Mount) *bed.Pod {
	n.Helper()
	all := map[string]string{"dev.gvisor.internal.fscheckpoint.enable": "true"}
	maps.Copy(all, annotations)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{
		Name: "author", Annotations: all,
		Containers: []bed.Container{{Name: "app", Command: []string{"/bin/sh", "-c", filesSaving}, Mounts: mounts}},
	})
	if err != nil {
		n.Fatal(err)
	}
	return p
}

// TestWorkloadSavesBoth has a pod save itself as a whole and then its files: neither takes the other's
// turn. A pod that is restored as a whole may save its files too.
func TestWorkloadSavesBoth(t *testing.T) {
	n := start(t)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{
		Name: "author", Containers: []bed.Container{{
			Name:    "app",
			Command: []string{"/bin/sh", "-c", "(" + filesSaving + ") & " + selfSaving},
		}},
		Annotations: map[string]string{
			"dev.gvisor.internal.checkpoint.enable": "true", "dev.gvisor.internal.fscheckpoint.enable": "true",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.touch(p, "/tmp/go")
	if got := n.readFile(p, "/tmp/result"); got != "resume" {
		t.Errorf("having saved everything, the origin read %q", got)
	}
	b := n.restore(n.madeOf(p).Name, "--name=branch")[0]
	for _, p := range []*bed.Pod{p, b} {
		n.touch(p, "/tmp/go1")
		if got := n.readFile(p, "/tmp/result1"); got != "resume" {
			t.Errorf("having saved its files, %s read %q", p.Name, got)
		}
	}
	n.sh(n.restore(n.madeOf(b).Name, "--name=again")[0], "app", "true")
}
