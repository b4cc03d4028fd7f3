package integration

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"diapause.dev/runsc/sleep"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
	"golang.org/x/sync/errgroup"
)

var readyPods = flag.Int("ready.pods", 50, "pods of TestReadyAtOnce")

// TestReadyAtOnce has many pods be ready, and wakes all of them at once. Each answers, and is what it was. Awake they
// do nothing: so many that work are too much for two processors, whether they have slept or not.
func TestReadyAtOnce(t *testing.T) {
	const metrics = "127.0.0.1:9465"
	n := start(t, readyFlag(*readyPods), "--metrics="+metrics)
	pods := make([]*bed.Pod, *readyPods)
	before := make([]answers.State, len(pods))
	for i := range pods {
		pods[i] = n.workload(fmt.Sprint("one-", i), "rest", "--mib=8")
		before[i] = n.serving(pods[i])
		n.asleep(pods[i])
		if err := n.containerd().OrderSleep(n.ctx, pods[i].ID, sleep.Order{Verb: sleep.MakeReady, Load: true}); err != nil {
			t.Fatal(err)
		}
	}
	var g errgroup.Group
	for _, p := range pods {
		g.Go(func() error {
			began := time.Now()
			err := <-n.asks(p)
			t.Logf("%s was answered after %v", p.Name, time.Since(began))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for i, p := range pods {
		if got := n.serving(p); got.Boot != before[i].Boot {
			t.Errorf("%s: boot %q, and %q before", p.Name, got.Boot, before[i].Boot)
		}
		n.verify(p)
	}
	n.eventually("they are counted", func() error {
		if got := n.wokeReady(metrics, true); got != len(pods) {
			return fmt.Errorf("%d wakes of ready pods", got)
		}
		return nil
	})
}

// TestReadyManyFiles has a pod be ready that holds 19,800 files open, in its root file system and on a volume. After
// the wake it has all of them, as after that of a pod that is not ready.
func TestReadyManyFiles(t *testing.T) {
	const half = 9_900 // a process may have 20,000 descriptors here
	n := start(t, readyFlag(1))
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "files", Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"},
		Mounts: []bed.Mount{{Host: t.TempDir(), Container: "/data"}},
	}, logging}})
	if err != nil {
		t.Fatal(err)
	}
	before := n.serving(p)
	for _, dir := range []string{"/var/tmp", "/data"} {
		n.post(p, fmt.Sprintf("/files?n=%d&dir=%s/held", half, dir))
	}
	for _, readies := range []bool{false, true, true} {
		n.readies = readies
		n.asleep(p)
		began := time.Now()
		n.alive(p, before)
		t.Logf("ready: %v: it went on after %v", readies, time.Since(began))
		var files answers.Files
		if err := n.get(p, "/files", &files); err != nil || files.Open != 2*half {
			t.Errorf("%d files are open, want %d: %v", files.Open, 2*half, err)
		}
		n.logsOn(p)
	}
}

// TestReadyDiskFull fills the disk of a node while a pod is ready, and before it becomes so. It wakes.
func TestReadyDiskFull(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.state, "size=64m")
	n := start(t, append(at.flags("--disk-floor=0"), readyFlag(1))...)
	p := n.sleeper("full", "--mib=8")
	before := n.serving(p)
	full := filepath.Join(at.state, "full")
	for _, fills := range []string{"before", "after"} {
		n.asleep(p)
		if fills == "after" {
			n.ready(p)
		}
		n.fill(full)
		if fills == "before" {
			n.ready(p)
		}
		n.alive(p, before)
		n.logsOn(p)
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
	}
	n.settled(at)
}

// fill fills the disk on which a file is.
func (n *node) fill(path string) {
	n.Helper()
	f, err := os.Create(path)
	if err != nil {
		n.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		if _, err := f.Write(piece); err != nil {
			piece = piece[:len(piece)/2]
		}
	}
}
