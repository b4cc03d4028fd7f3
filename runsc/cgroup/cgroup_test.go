package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"diapause.dev/test/privileged"
	"golang.org/x/sys/unix"
)

// child makes a cgroup below that of this process. It is removed when the test ends.
func child(t *testing.T) *Memory {
	t.Helper()
	privileged.Need(t, "a cgroup")
	own, err := MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(own.top, own.files.home(own.group), fmt.Sprintf("diapause-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	m, err := MemoryAt(own.top, dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// home is where a test can make cgroups. In v2 a cgroup with processes has no controllers below it.
func (f *files) home(group string) string {
	if f == &v2 {
		return "."
	}
	return group
}

func TestProcessIsFound(t *testing.T) {
	m := child(t)
	cmd := exec.Command("sh", "-c", "echo $$ > $0/cgroup.procs && echo in && exec sleep infinity", m.Dir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "in\n" {
		t.Fatalf("process says %q, %v", line, err)
	}
	found, err := MemoryOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if found.Dir() != m.Dir() {
		t.Errorf("found %s, want %s", found.Dir(), m.Dir())
	}
	if used, _, err := found.Usage(); err != nil || used == 0 {
		t.Errorf("used %d, %v, want some memory", used, err)
	}
}

func TestTightestLimitCounts(t *testing.T) {
	m := child(t)
	dir := filepath.Join(m.Dir(), "inner")
	if m.files == &v2 {
		if err := os.WriteFile(filepath.Join(m.Dir(), "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	inner, err := MemoryAt(m.top, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		outer, inner string
		want         int64
	}{{"67108864", "134217728", 64 << 20}, {"134217728", "67108864", 64 << 20}} {
		for file, value := range map[string]string{m.Dir(): c.outer, inner.Dir(): c.inner} {
			if err := os.WriteFile(filepath.Join(file, m.files.limit), []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		limit, err := inner.Limit()
		if err != nil || limit != c.want {
			t.Errorf("limits %s of %s: %d, %v, want %d", c.inner, c.outer, limit, err, c.want)
		}
		if l, err := inner.Tightest(); err != nil || l.Limit != c.want || l.Free() != c.want-l.Usage+l.Reclaimable {
			t.Errorf("limits %s of %s: tightest is %+v, %v, want that of %d", c.inner, c.outer, l, err, c.want)
		}
	}
}

func TestNoLimitIsUnlimited(t *testing.T) {
	m := child(t)
	levels, err := m.Levels()
	if err != nil {
		t.Fatal(err)
	}
	if levels[0].Dir != m.Dir() || levels[0].Limit != Unlimited || levels[0].Free() != Unlimited {
		t.Errorf("new cgroup %s: %+v, want no limit", m.Dir(), levels[0])
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		root, path, want string
		err              error
	}{
		{root: "/", path: "/kubepods/pod1", want: "kubepods/pod1"},
		{root: "/", path: "/", want: "."},
		{root: "/kubepods/pod1", path: "/kubepods/pod1/c", want: "c"},
		{root: "/kubepods/pod1", path: "/kubepods/pod2", err: ErrNotVisible},
		{root: "/../../..", path: "/../../../system.slice/x", want: "system.slice/x"},
		{root: "/", path: "/../pod2", err: ErrNotVisible},
	} {
		got, err := below(c.root, c.path)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("below(%q, %q) = %q, %v, want %q, %v", c.root, c.path, got, err, c.want, c.err)
		}
	}
}

// set writes the limit of a cgroup.
func (m *Memory) set(t *testing.T, bytes int64) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.Dir(), m.files.limit), fmt.Append(nil, bytes), 0); err != nil {
		t.Fatal(err)
	}
}

func (m *Memory) own(t *testing.T) int64 {
	t.Helper()
	l, err := m.files.level(m.Dir())
	if err != nil {
		t.Fatal(err)
	}
	return l.Limit
}

func (m *Memory) is(dir string) bool { return dir == m.Dir() }

func raise(t *testing.T, m *Memory, need int64) []Change {
	t.Helper()
	changes, err := m.Raise(need, m.is)
	if err == nil {
		err = Apply(changes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func TestRaisedLimitIsPutBack(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	changes := raise(t, m, 100<<20)
	if limit := m.own(t); limit < 100<<20 {
		t.Errorf("limit is %d, want room for 100 MiB", limit)
	}
	if left, err := Undo(changes); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
	if limit := m.own(t); limit != 64<<20 {
		t.Errorf("limit is %d, want 64 MiB again", limit)
	}
}

func TestRoomNeedsNoRaise(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	if changes := raise(t, m, 8<<20); len(changes) > 0 {
		t.Errorf("changes %+v", changes)
	}
}

func TestLimitOfOthersWins(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	changes := raise(t, m, 100<<20)
	m.set(t, 80<<20) // as a kubelet does when it resizes the pod
	if left, err := Undo(changes); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
	if limit := m.own(t); limit != 80<<20 {
		t.Errorf("limit is %d, want the 80 MiB of somebody else", limit)
	}
}

// TestHostileLimitInUse has a process use more than its old limit. Undo leaves the limit raised. If the limit is
// lowered all the same, the kernel kills the process (v2), or refuses the limit (v1).
func TestHostileLimitInUse(t *testing.T) {
	m := child(t)
	m.set(t, 8<<20)
	changes := raise(t, m, 100<<20)
	script := "echo $$ > $0/cgroup.procs && x=$(head -c 16777216 /dev/zero | tr '\\0' x) && echo in && read end"
	cmd := exec.Command("sh", "-c", script, m.Dir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "in\n" {
		t.Errorf("process says %q, %v", line, err)
	}
	left, err := Undo(changes)
	if !errors.Is(err, ErrInUse) || len(left) == 0 {
		t.Errorf("left %+v, %v, want what is in use", left, err)
	}
	left = Lower(left, 64<<20)
	if err := Apply(left); err != nil || Over(left) || m.own(t) != 72<<20 {
		t.Errorf("limit with 64 MiB to spare is %d, over %v, %v, want 72 MiB", m.own(t), Over(left), err)
	}
	left = Lower(left, 0)
	switch err := Apply(left); m.files {
	case &v1:
		if !errors.Is(err, unix.EBUSY) || !Over(left) {
			t.Errorf("over %v, %v, want the kernel to refuse", Over(left), err)
		}
		in.Close()
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 1 {
			t.Error(err)
		}
	case &v2:
		if err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Errorf("process over its limit: %v, want it killed", err)
		}
	}
	if left, err = Undo(left); err != nil || len(left) > 0 {
		t.Errorf("after its end: left %+v, %v", left, err)
	}
	if limit := m.own(t); limit != 8<<20 {
		t.Errorf("limit is %d, want 8 MiB again", limit)
	}
}

func TestGoneCgroupNeedsNoUndo(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	changes := raise(t, m, 100<<20)
	if err := os.Remove(m.Dir()); err != nil {
		t.Fatal(err)
	}
	if left, err := Undo(changes); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
}

// TestChangeCutShort undoes changes that are recorded and not made yet.
func TestChangeCutShort(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	changes, err := m.Raise(100<<20, m.is)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := Undo(changes); err != nil || len(left) > 0 || m.own(t) != 64<<20 {
		t.Errorf("left %+v, %v, limit %d", left, err, m.own(t))
	}
	m.set(t, 80<<20)
	if err := Apply(changes); err == nil {
		t.Error("changes are made though the limit is another one by now")
	}
}

// TestLimitOfOthersIsNotRaised needs room that a limit of somebody else prevents.
func TestLimitOfOthersIsNotRaised(t *testing.T) {
	m := child(t)
	m.set(t, 64<<20)
	if changes, err := m.Raise(100<<20, func(string) bool { return false }); err != nil || len(changes) > 0 {
		t.Errorf("changes %+v, %v", changes, err)
	}
}
