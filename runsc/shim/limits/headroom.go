package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"diapause.dev/runsc/cgroup"
	"github.com/containerd/errdefs"
)

// How much memory a save takes is known only afterwards. The sentry writes records of all its objects, and they live
// in its own memory: 3,000 closed connections took it from 46 MiB to 157, 20,000 files from 46 to 171. So it may use
// saveFactor times its memory, and saveBase for the processes beside it.
const (
	saveFactor = 4
	saveBase   = 128 << 20
)

// restoreRoom is how many bytes beyond its limit a sandbox may use during a restore. A sentry that reads 20,000 files
// back takes 50 MiB more than it needs afterwards.
const restoreRoom = 128 << 20

// keptGrowth is how many bytes more than before an operation gVisor may keep: its limits are put back when it has no
// more, and a program may not make use of more. besideGrowth is the part of it that is not measured: that of the
// processes beside the sentry.
const (
	keptGrowth   = 24 << 20
	besideGrowth = 4 << 20
)

// Config says whose limits are raised, and how.
type Config struct {
	Sandbox string // id of the sandbox container
	Cgroup  string // path of the sandbox's cgroup, in the notation of an OCI spec
	Bundle  string // directory of the sandbox container's bundle, which has the records of what is raised

	Owns       func(cgroup string) bool    // reports whether a cgroup is the pod's own
	Process    func() (int, error)         // returns the sandbox's process
	Kill       func() error                // ends the sandbox
	Reduce     func(context.Context) error // asks the sentry to free memory
	Incomplete func() bool                 // reports whether a restore goes on, and the program does not run yet
	Loading    func() bool                 // reports whether a restore has not loaded all memory yet
}

// Headroom is what a pod's sandbox may use beyond its limits while it is saved or restored. Its methods may be called
// concurrently.
type Headroom struct {
	Config
	memory limits
	cpu    limits
	saved  atomic.Int64 // anonymous memory of the sentry before the last save, in bytes; 0: there was none
	grants grants       // of memory that saves may take
}

// New returns the headroom of a sandbox, which need not be there yet. Close it once the sandbox has ended.
func New(c Config) *Headroom {
	h := &Headroom{Config: c, grants: grants{grantsDir}}
	h.memory = limits{
		record: filepath.Join(c.Bundle, memoryRecord), reduce: c.Reduce, kill: c.Kill,
		runs: func() bool { return !c.Incomplete() }, grown: h.grownByRestore, most: raisedLimit,
	}
	h.cpu = limits{
		record: filepath.Join(c.Bundle, cpuRecord), reduce: func(context.Context) error { return nil },
		runs: func() bool { return true }, grown: func() int64 { return 0 }, most: raisedLimit,
	}
	return h
}

// Close puts all limits back a last time.
func (h *Headroom) Close() {
	h.memory.close()
	h.cpu.close()
}

// PutBack puts back the limits that a shim which is gone had raised. The bundle is that of its sandbox container.
func PutBack(bundle string) error {
	_, memory := undoRaised(filepath.Join(bundle, memoryRecord))
	_, cpu := undoRaised(filepath.Join(bundle, cpuRecord))
	return errors.Join(memory, cpu)
}

// ToSave raises the sandbox's limits for a save. The function that it returns puts them back, by limits.go. If the
// shim dies before, Stop in manager.go puts them back.
func (h *Headroom) ToSave(ctx context.Context) (putBack func(), err error) {
	pid, before, err := h.own()
	if err != nil {
		return nil, err
	}
	give, err := h.makeSpace(ctx, pid, saveBase+saveFactor*before)
	if err != nil {
		return nil, err
	}
	h.saved.Store(before)
	return func() {
		give()
		h.memory.putBack(func() int64 { return h.grown(before) })
	}, nil
}

// CheckMemory returns an error if the pod's limits are still raised, or if the node, or a cgroup that the pod shares
// with others, lacks the memory for a save.
func (h *Headroom) CheckMemory(ctx context.Context) error {
	if err := h.unraised(); err != nil {
		return err
	}
	pid, before, err := h.own()
	if err != nil {
		return err
	}
	m, err := cgroup.MemoryOf(pid)
	if err != nil {
		return nil // makeSpace ignores this too
	}
	return h.shared(ctx, m, saveBase+saveFactor*before, func(_ grant, fits func([]grant) error) error {
		return h.grants.look(ctx, h.Sandbox, fits)
	})
}

// own returns the sandbox's process, and how much anonymous memory that process has.
func (h *Headroom) own() (pid int, bytes int64, err error) {
	if pid, err = h.Process(); err != nil {
		return 0, 0, err
	}
	bytes, err = cgroup.Anonymous(pid)
	return pid, bytes, err
}

// unraised puts back limits that an earlier operation has raised. If it cannot, it returns an error.
func (h *Headroom) unraised() error {
	err := errors.Join(h.memory.ready(), h.cpu.ready())
	if err != nil {
		err = fmt.Errorf("%v: %w", err, errdefs.ErrResourceExhausted)
	}
	return err
}

// grown returns how many bytes gVisor itself has more than when its sentry had before. A sentry that is gone has none.
func (h *Headroom) grown(before int64) int64 {
	_, now, err := h.own()
	if err != nil {
		return 0
	}
	return max(0, now-before) + besideGrowth
}

// grownByRestore is grown for a sandbox that was restored, but never more than keptGrowth. How much its sentry had
// before is known only if the pod has slept. Until it has its memory, there is a sidecar beside it.
func (h *Headroom) grownByRestore() int64 {
	before := h.saved.Load()
	if before == 0 || h.Loading() {
		return keptGrowth
	}
	return min(h.grown(before), keptGrowth)
}

// ToRestore raises the pod's limits until the restore of its sandbox, which need not be there yet, is complete. If
// a limit cannot be raised, it stays as it is.
func (h *Headroom) ToRestore() (cancel func()) {
	err := h.raiseToRestore()
	if err != nil {
		slog.Warn("the restore may run into the sandbox's memory limit", "sandbox", h.Sandbox, "error", err)
	}
	return func() { h.memory.putBack(h.memory.grown) }
}

func (h *Headroom) raiseToRestore() error {
	return h.memory.raise(func() ([]cgroup.Change, error) {
		return cgroup.RaiseAbove(h.Cgroup, restoreRoom, h.Owns)
	})
}

// PutBackRestored puts limits back, in the background, once a sandbox that was restored has all its memory.
func (h *Headroom) PutBackRestored() {
	h.memory.putBackWhen(func(context.Context) bool { return !h.Loading() })
}

// makeSpace lets the sandbox allocate need more bytes until the limits are put back. Until give is called, other saves
// cannot have them. If the node, or a cgroup that the pod shares with others, has less, it returns an error.
func (h *Headroom) makeSpace(ctx context.Context, pid int, need int64) (give func(), err error) {
	if err := h.unraised(); err != nil {
		return nil, err
	}
	m, err := cgroup.MemoryOf(pid)
	if err != nil {
		slog.Warn("the sandbox may run into its memory limit", "sandbox", h.Sandbox, "error", err)
		return func() {}, nil
	}
	err = h.shared(ctx, m, need, func(own grant, fits func([]grant) error) (err error) {
		give, err = h.grants.take(ctx, h.Sandbox, own, fits)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := h.memory.raise(func() ([]cgroup.Change, error) { return m.Raise(need, h.Owns) }); err != nil {
		give()
		return nil, err
	}
	return give, nil
}

// A save that lacks only what other saves may take waits for them, up to roomLimit, and looks again every roomPause.
const (
	roomLimit = 5 * time.Second
	roomPause = 50 * time.Millisecond
)

// shared calls ask with what a save may take. Fits returns an error unless the node and the cgroups above the pod's
// have need more bytes free than the grants of other saves. If that is for these grants alone, shared waits.
func (h *Headroom) shared(ctx context.Context, m *cgroup.Memory, need int64,
	ask func(own grant, fits func([]grant) error) error,
) error {
	for end := time.Now().Add(roomLimit); ; {
		levels, err := m.Levels()
		if err != nil {
			return err
		}
		levels = slices.DeleteFunc(levels, func(l cgroup.Level) bool { return h.Owns(l.Dir) })
		own := grant{Bytes: need}
		for _, l := range levels {
			own.Cgroups = append(own.Cgroups, l.Dir)
		}
		err = ask(own, func(others []grant) error { return fits(need, levels, others) })
		if _, waits := errors.AsType[grantedError](err); !waits || time.Now().After(end) || !wait(ctx, roomPause) {
			return err
		}
	}
}

// grantedError is the error for memory that is free, but that other saves may take.
type grantedError struct{ error }

func (e grantedError) Unwrap() error { return e.error }

// fits returns an error unless the node and these cgroups have need more bytes free than the grants of other saves.
func fits(need int64, levels []cgroup.Level, others []grant) error {
	for _, l := range levels {
		of := fmt.Sprintf("cgroup %s has %d MiB of %d left", l.Dir, l.Free()>>20, l.Limit>>20)
		if err := short(need, l.Free(), sum(others, l.Dir), of); err != nil {
			return err
		}
	}
	free, err := cgroup.Available()
	if err != nil {
		return err
	}
	return short(need, free, sum(others, ""), fmt.Sprintf("the node has %d MiB", free>>20))
}

// short returns an error unless need bytes are free beside those that are granted. Of says what has them.
func short(need, free, granted int64, of string) error {
	if free-granted >= need {
		return nil
	}
	if granted > 0 {
		of += fmt.Sprintf(", of which other checkpoints may take %d", granted>>20)
	}
	err := fmt.Errorf("it may take %d MiB more memory, and %s: free memory first: %w", need>>20, of,
		errdefs.ErrResourceExhausted)
	if free >= need {
		return grantedError{err}
	}
	return err
}
