package limits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/runsc/cgroup"
	"diapause.dev/test/privileged"
	"github.com/containerd/errdefs"
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
		record: filepath.Join(t.TempDir(), memoryRecord), reduce: func(context.Context) error { return nil },
		runs: func() bool { return true }, grown: nothing, most: time.Hour,
		kill: func() error { t.Error("the sandbox is ended"); return nil },
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

// nothing is how much more than before a sentry has that has freed all of it.
func nothing() int64 { return 0 }

// raise raises the limit.
func (b *box) raise(t *testing.T, need int64) {
	t.Helper()
	if err := b.tryRaise(need); err != nil {
		t.Fatal(err)
	}
}

func (b *box) tryRaise(need int64) error {
	return b.limits.raise(func() ([]cgroup.Change, error) {
		return b.Raise(need, func(dir string) bool { return dir == b.Dir() })
	})
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
	b.limits.putBack(nothing)
	<-asked
	free()
	b.limits.group.Wait()
	b.is(t, 8*mib)
	if _, err := os.Stat(b.limits.record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("record of what is put back: %v", err)
	}
}

// TestHostileSecondRaise has a program use more than its limit after an operation. There is no other operation until it
// uses less.
func TestHostileSecondRaise(t *testing.T) {
	b := newBox(t, 8*mib)
	b.raise(t, 100*mib)
	free := b.fill(t)
	b.limits.putBack(nothing) // does not fit
	levels, err := b.Levels()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.tryRaise(100 * mib); !errors.Is(err, errStillRaised) {
			t.Errorf("raised once more: %v", err)
		}
		b.is(t, levels[0].Limit)
	}
	free()
	b.raise(t, 100*mib)
	b.limits.putBack(nothing)
	b.limits.group.Wait()
	b.is(t, 8*mib)
}

// TestHostileMemoryIsKept has a program keep more than its limit after an operation. It is ended, and the limit is put
// back: by the kernel with cgroup v2, and otherwise by the shim.
func TestHostileMemoryIsKept(t *testing.T) {
	b := newBox(t, 8*mib)
	b.raise(t, 100*mib)
	free, killed := b.fill(t), false
	b.limits.kill = func() error { killed = true; free(); return nil }
	b.limits.most = 0
	b.limits.putBack(nothing)
	b.limits.group.Wait()
	b.is(t, 8*mib)
	if !killed { // v2
		free()
	}
}

// TestHostileWakes has a wake find the limit raised for the save before it: the wake does not add to that.
func TestHostileWakes(t *testing.T) {
	b := newBox(t, 8*mib)
	path := strings.TrimPrefix(strings.TrimPrefix(b.Dir(), "/sys/fs/cgroup"), "/memory")
	owns := func(dir string) bool { return filepath.Base(dir) == filepath.Base(path) }
	h := Headroom{Config: Config{Cgroup: path, Owns: owns}}
	h.memory = limits{record: b.limits.record, runs: b.limits.runs, grown: nothing, reduce: b.limits.reduce}
	b.raise(t, 100*mib)
	free := b.fill(t)
	h.ToRestore()
	b.is(t, 100*mib)
	free()
	for range 2 {
		h.ToRestore()
		b.is(t, 8*mib+restoreRoom)
	}
}

// TestProcessorLimitStillRaised: a limit of processor time that cannot be put back keeps the pod from being saved, too.
func TestProcessorLimitStillRaised(t *testing.T) {
	dir := t.TempDir()
	var h Headroom
	h.memory.record, h.cpu.record = filepath.Join(dir, memoryRecord), filepath.Join(dir, cpuRecord)
	if err := h.unraised(); err != nil {
		t.Fatal(err)
	}
	// A directory can be neither read nor written.
	if err := writeRaised(h.cpu.record, []cgroup.Change{{File: dir, Was: "20000", From: "20000", Is: "-1"}}); err != nil {
		t.Fatal(err)
	}
	if err := h.unraised(); !errdefs.IsResourceExhausted(err) {
		t.Errorf("got %v, want that a limit is still raised", err)
	}
}

// TestMemoryOfTheSentryIsSpared: what the sentry has more than before costs no program its life.
func TestMemoryOfTheSentryIsSpared(t *testing.T) {
	b := newBox(t, 16*mib)
	b.raise(t, 100*mib)
	free := b.fill(t)
	b.limits.enforce(t.Context(), func() int64 { return 100 * mib })
	b.is(t, 16*mib+keptGrowth)
	if err := b.tryRaise(100 * mib); !errors.Is(err, errStillRaised) {
		t.Errorf("raised once more: %v", err)
	}
	free()
	if err := b.limits.ready(); err != nil {
		t.Error(err)
	}
	b.is(t, 16*mib)
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
