package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
)

// selfSaving is the script of a container that has its own sandbox saved, and says what came of it.
const selfSaving = `boot=$(head -c 8 /dev/urandom | od -An -tx8 | tr -d ' '); echo $boot > /tmp/boot
while [ ! -e /tmp/go ]; do usleep 10000; done
exec 3<>/proc/gvisor/checkpoint || exit 3
echo 1 >&3 || echo refused > /tmp/result
[ -e /tmp/result ] || head -n 1 <&3 > /tmp/result.new; mv /tmp/result.new /tmp/result
exec sleep infinity`

// TestWorkloadSaves has a process save its own sandbox: the origin goes on with "resume", branches
// begin with "restore", and all have one memory.
func TestWorkloadSaves(t *testing.T) {
	n := start(t)
	outside := t.TempDir()
	p := n.author("author", map[string]string{"dev.gvisor.internal.checkpoint.path": outside}) // not the pod's to say
	boot := n.readFile(p, "/tmp/boot")
	n.agent.Kill()
	n.startAgent() // the sandbox was created under another one
	n.touch(p, "/tmp/go")
	if got := n.readFile(p, "/tmp/result"); got != "resume" {
		t.Errorf("the origin read %q", got)
	}
	s := n.madeOf(p)
	b := n.restore(s.Name, "--name=branch")[0]
	if got := n.readFile(b, "/tmp/result"); got != "restore" {
		t.Errorf("the branch read %q", got)
	}
	if got := n.readFile(b, "/tmp/boot"); got != boot {
		t.Errorf("the branch is %q, the origin %q", got, boot)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("the pod wrote %v on the node, %v", left, err)
	}
}

// TestWorkloadSavesWhileLoading has a process save its own sandbox while that is loading: what is saved is whole.
func TestWorkloadSavesWhileLoading(t *testing.T) {
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	t.Setenv("STORAGE_EMULATOR_HOST", slowed(t, store.Address))
	n := start(t, "--state-dir="+t.TempDir(), "--store=gs://bucket")
	p := n.author("author", nil)
	boot := n.readFile(p, "/tmp/boot")
	sum := n.sh(p, "app", "head -c 64m /dev/urandom > /dev/shm/bulk; md5sum < /dev/shm/bulk")
	n.checkpoint("--name=begun", p.ID)
	n.restartAgent("--state-dir="+t.TempDir(), "--store=gs://bucket") // which has nothing of it on the node
	b := n.author("branch", map[string]string{podsnapshotv1.AnnotationRestoreFrom: "default/begun"})
	if !n.isLoading(b) {
		t.Fatal("it has been loaded")
	}
	n.touch(b, "/tmp/go")
	if got := n.readFile(b, "/tmp/result"); got != "resume" {
		t.Errorf("the branch read %q", got)
	}
	again := n.restore(n.madeOf(b).Name, "--name=again")[0]
	if got := n.readFile(again, "/tmp/result"); got != "restore" {
		t.Errorf("what it saved read %q", got)
	}
	for _, p := range []*bed.Pod{b, again} {
		if got := n.readFile(p, "/tmp/boot"); got != boot {
			t.Errorf("%s is %q, the origin %q", p.Name, got, boot)
		}
		if got := n.sh(p, "app", "md5sum < /dev/shm/bulk"); got != sum {
			t.Errorf("%s has %q, the origin %q", p.Name, got, sum)
		}
	}
}

// TestHostileWorkloadNotAllowed has a process save its own sandbox on a node where no pod may: it is told, and there is
// no snapshot. The agent's log says why.
func TestHostileWorkloadNotAllowed(t *testing.T) {
	n := start(t, "--workload-saves=false")
	p := n.author("author", nil)
	n.touch(p, "/tmp/go")
	if got := n.readFile(p, "/tmp/result"); got != "error" {
		t.Errorf("the workload read %q", got)
	}
	if out := n.mustCLI("ls", "--output=json"); strings.Contains(out, p.Name+"-") {
		t.Errorf("there is a snapshot: %s", out)
	}
	if log := n.agent.Log(); !strings.Contains(log, "it may not save itself: start the agent with --workload-saves") {
		t.Error("the agent's log does not say why")
	}
}

// TestWorkloadRefused has a process save its own sandbox when the agent cannot: it is told.
func TestWorkloadRefused(t *testing.T) {
	n := start(t)
	shared := t.TempDir()
	n.author("author", nil, bed.Mount{Host: shared, Container: "/tmp"})
	n.bed.Containerd.Kill() // the agent needs it
	if err := os.WriteFile(filepath.Join(shared, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.eventually("the workload is told", func() error {
		got, err := os.ReadFile(filepath.Join(shared, "result"))
		if err == nil && string(got) != "error\n" {
			t.Fatalf("the workload read %q", got)
		}
		return err
	})
	if err := n.bed.Containerd.Start(n.ctx); err != nil {
		t.Fatal(err)
	}
}

// readFile returns what is in a file of the pod once it is there.
func (n *node) readFile(p *bed.Pod, name string) (content string) {
	n.Helper()
	n.eventually(p.Name+" has "+name, func() error {
		out, code, err := n.bed.Exec(n.ctx, p.Container("app"), "cat", name)
		content = strings.TrimSpace(out)
		if err == nil && (code != 0 || content == "") {
			err = fmt.Errorf("cat: status %d", code)
		}
		return err
	})
	return content
}

// madeOf returns the one snapshot of a pod.
func (n *node) madeOf(p *bed.Pod) (s snapshotted) {
	n.Helper()
	n.eventually("a snapshot of "+p.Name, func() error {
		var out struct {
			Snapshots []snapshotted `json:"snapshots"`
		}
		n.decode(n.mustCLI("ls", "--output=json"), &out)
		for _, s = range out.Snapshots {
			if strings.HasPrefix(s.Name, p.Name+"-") && s.Replicated {
				return nil
			}
		}
		return fmt.Errorf("not there")
	})
	return s
}

// author runs a pod that saves itself.
func (n *node) author(name string, annotations map[string]string, mounts ...bed.Mount) *bed.Pod {
	n.Helper()
	all := map[string]string{"dev.gvisor.internal.checkpoint.enable": "true"}
	maps.Copy(all, annotations)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{
		Name: name, Annotations: all, Containers: []bed.Container{{
			Name:    "app",
			Command: []string{"/bin/sh", "-c", selfSaving}, Mounts: mounts,
		}},
	})
	if err != nil {
		n.Fatal(err)
	}
	return p
}

func (n *node) touch(p *bed.Pod, name string) {
	n.Helper()
	if _, _, err := n.bed.Exec(n.ctx, p.Container("app"), "touch", name); err != nil {
		n.Fatal(err)
	}
}
