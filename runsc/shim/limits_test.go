package shim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"diapause.dev/runsc/cgroup"
	"diapause.dev/test/privileged"
)

// box is a test's memory cgroup with a limit, and the limits of its bundle.
type box struct {
	*cgroup.Memory
	limits *limits
}

// newBox makes a cgroup beside that of this process. It is removed when the test ends.
func newBox(t *testing.T, limit int64) *box {
	t.Helper()
	privileged.Need(t, "a cgroup")
	own, err := cgroup.MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	parent := own.Dir()
	if _, err := os.Stat(filepath.Join(parent, "memory.max")); err == nil {
		parent = filepath.Dir(parent) // in cgroup v2, one with processes has no controllers below it
	}
	dir := filepath.Join(parent, fmt.Sprintf("diapause-shim-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	m, err := cgroup.MemoryAt(parent, dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{m, &limits{
		record: filepath.Join(t.TempDir(), raisedMemory), reduce: func(context.Context) error { return nil },
	}}
	t.Cleanup(b.limits.close)
	for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := os.WriteFile(path, fmt.Append(nil, limit), 0); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// raise raises the limit.
func (b *box) raise(t *testing.T, need int64) {
	t.Helper()
	changes, err := b.Raise(need, func(dir string) bool { return dir == b.Dir() })
	if err == nil {
		err = b.limits.raise(changes)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b *box) is(t *testing.T, want int64) {
	t.Helper()
	levels, err := b.Levels()
	if err != nil {
		t.Fatal(err)
	}
	if levels[0].Limit != want {
		t.Errorf("limit is %d, want %d", levels[0].Limit, want)
	}
}

// fill starts a process in the cgroup that uses 16 MiB until free is called.
func (b *box) fill(t *testing.T) (free func()) {
	t.Helper()
	script := "echo $$ > $0/cgroup.procs && x=$(head -c 16777216 /dev/zero | tr '\\0' x) && echo in && read end"
	cmd := exec.Command("sh", "-c", script, b.Dir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "in\n" {
		t.Errorf("process says %q, %v", line, err)
	}
	return func() {
		in.Close()
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 1 {
			t.Error(err)
		}
	}
}

const mib = 1 << 20

func TestLimitIsPutBackOnceMemoryIsFree(t *testing.T) {
	b := newBox(t, 8*mib)
	b.raise(t, 100*mib)
	free := b.fill(t)
	asked := make(chan struct{}, reduceTries)
	b.limits.reduce = func(context.Context) error { asked <- struct{}{}; return nil }
	b.limits.putBack(func() bool { return true })
	<-asked
	free()
	b.limits.group.Wait()
	b.is(t, 8*mib)
	if _, err := os.Stat(b.limits.record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("record of what is put back: %v", err)
	}
}

func TestLimitOfTwoOperationsGoesBackToTheFirst(t *testing.T) {
	b := newBox(t, 8*mib)
	b.raise(t, 100*mib)
	free := b.fill(t)
	b.limits.putBack(func() bool { return true }) // does not fit
	b.raise(t, 200*mib)
	free()
	b.limits.putBack(func() bool { return true })
	b.limits.group.Wait()
	b.is(t, 8*mib)
}

// TestNextShimPutsLimitsBack has only the record of a shim that is gone.
func TestNextShimPutsLimitsBack(t *testing.T) {
	b := newBox(t, 8*mib)
	b.raise(t, 100*mib)
	if left, err := undoRaised(b.limits.record); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
	b.is(t, 8*mib)
}

func TestCloseWaitsForNobody(t *testing.T) {
	b := newBox(t, 8*mib)
	b.raise(t, 100*mib)
	b.limits.putBackWhen(func(context.Context) bool { return false })
	b.limits.close()
	b.is(t, 8*mib)
}
