package integration

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// TestStop stops pods after their checkpoint and restores them: they must go on from the very
// instant. One writes numbers to a file outside of it, which no restore takes back: any instant
// lived twice, or not at all, shows there.
func TestStop(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	dir := t.TempDir()
	p := n.counting("counts", dir)
	for i := range 3 {
		n.grows(dir)
		s := n.checkpoint("--stop", p.ID)
		if codes := n.ended(p); !slices.Equal(codes, []int32{137, 137}) {
			t.Errorf("exit codes %d", codes)
		}
		last := numbers(t, dir)
		allow := "--allow=host-path:" + dir
		n.refused([]string{"a snapshot may not ask for that", allow}, "restore", s.Name)
		p = n.restore(s.Name, fmt.Sprint("--name=again-", i), allow)[0]
		n.grows(dir)
		if got := numbers(t, dir); got <= last {
			t.Errorf("counted on to %d from %d", got, last)
		}
	}
	n.serving(p)
	n.verify(p)
	n.unpaused(p)
	n.settled(at)
}

// TestNotStopped saves pods that cannot be stopped, for the agent cannot mark them: they run on, and
// their snapshots, which are safe, are told beside what failed.
func TestNotStopped(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.workload("origin", "serve", "--mib", "8")
	before := n.serving(p)
	marker := filepath.Join("/run/diapause/stopped", p.ID)
	if err := os.Mkdir(marker, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(marker) })
	half := func(args ...string) string {
		out, err := n.cli(append([]string{"checkpoint", "--stop", "origin"}, args...)...)
		for _, w := range []string{
			"exit status 1", `checkpoint "origin"`, "the sandbox was not stopped", marker,
			"file exists",
		} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not in %v", w, err)
			}
		}
		n.alive(p, before)
		return out
	}
	var out struct {
		Snapshot snapshotted `json:"snapshot"`
		Error    string      `json:"error"`
	}
	n.decode(half("--name=told", "--output=json"), &out)
	if s := out.Snapshot; s.Name != "told" || !s.OnNode || !strings.Contains(out.Error, marker) {
		t.Errorf("told of %+v, error %q", s, out.Error)
	}
	if row := half("--name=shown"); !strings.Contains(row, "shown") {
		t.Errorf("no snapshot shown in %q", row)
	}
	n.settled(at)
	for _, name := range []string{"told", "shown"} {
		b := n.restore(name, "--name=again-"+name)[0]
		if st := n.serving(b); st.Boot != before.Boot {
			t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
		}
	}
}

// counting runs a pod of a workload and a shell that writes one number after the other into dir.
func (n *node) counting(name, dir string) *bed.Pod {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib", "8"}},
		{
			Name: "shell", Command: []string{"/bin/sh", "-c", `i=0; while true; do i=$((i+1)); echo $i >> /out/numbers; done`},
			Mounts: []bed.Mount{{Host: dir, Container: "/out"}},
		},
	}})
	if err != nil {
		n.Fatal(err)
	}
	return p
}

// grows waits until some more numbers have been written.
func (n *node) grows(dir string) {
	n.Helper()
	size := func() int64 {
		s, err := os.Stat(filepath.Join(dir, "numbers"))
		if err != nil {
			return 0
		}
		return s.Size()
	}
	from := size()
	n.eventually("numbers grow", func() error {
		if now := size(); now < from+100 {
			return fmt.Errorf("from %d to %d bytes", from, now)
		}
		return nil
	})
}

// numbers returns the last number written, and fails the test unless each follows the one before.
func numbers(t *testing.T, dir string) (last int) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "numbers"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		i, err := strconv.Atoi(lines.Text())
		if err != nil || i != last+1 {
			t.Fatalf("%q follows %d", lines.Text(), last)
		}
		last = i
	}
	return last
}
