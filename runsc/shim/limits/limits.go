// Package limits raises a sandbox's cgroup limits for as long as it is saved or restored, and puts them back. What a
// save takes is known only afterwards, and a program may not make use of it.
package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"diapause.dev/runsc/cgroup"
	"golang.org/x/sys/unix"
)

// The files in a sandbox's bundle that record which limits are raised: those of memory, and those of processor time.
// They outlive the shim. If the shim dies, containerd runs a command in the bundle to remove what is left of the
// sandbox, and that command puts the limits back.
const (
	memoryRecord = "diapause-raised"
	cpuRecord    = "diapause-raised-cpu"
)

// After an operation the sentry is asked to free memory until it uses about as much as before. This takes two to four
// tries. reduceTries bounds the tries, and reducePause is the pause in between. If the limits do not fit even then, it
// is asked once more after each reduceTries pauses.
const (
	reduceTries = 8
	reducePause = time.Second
)

// A limit that does not fit raisedLimit after the operation is lowered all the same, see enforce. With the last request
// to the sentry and the pauses this takes less than a minute. What gVisor itself has more than before may remain, and
// keptGrowth at most. Such a limit is tried again every slowPause.
const (
	raisedLimit = 45 * time.Second
	slowPause   = 30 * time.Second
)

// errStillRaised is the kind of error for limits that must be put back before they can be raised again.
var errStillRaised = errors.New("a limit of the pod is still raised for the checkpoint, restore or wake before")

// limits raises a sandbox's limits for the time of an operation. Only one operation at a time may do so.
type limits struct {
	record string // path of the file that says which are raised
	reduce func(context.Context) error
	kill   func() error  // ends the sandbox
	runs   func() bool   // reports whether the program of a restored sandbox runs
	grown  func() int64  // of a restored sandbox: see putBack
	most   time.Duration // see raisedLimit

	group sync.WaitGroup

	mu     sync.Mutex
	end    context.CancelFunc // stops the goroutine that puts limits back; nil: there is none
	closed bool
}

// raise makes the changes that plan returns. They last until putBack. If changes of an earlier operation cannot be
// undone, it makes none, and the error is of kind errStillRaised.
func (l *limits) raise(plan func() ([]cgroup.Change, error)) error {
	if err := l.ready(); err != nil {
		return err
	}
	l.stopBackground()
	l.mu.Lock()
	defer l.mu.Unlock()
	changes, err := plan()
	if err != nil || len(changes) == 0 {
		return err
	}
	if err := l.change(changes); err != nil {
		_, undone := undoRaised(l.record)
		return errors.Join(err, undone)
	}
	return nil
}

// ready puts back limits that an earlier operation has raised. If it cannot, the error is of kind errStillRaised.
func (l *limits) ready() error {
	if err := l.undo(); err != nil {
		return fmt.Errorf("%w: %w: free memory in the pod, or try again in a minute", errStillRaised, err)
	}
	return nil
}

// change records changes, and then makes them.
func (l *limits) change(changes []cgroup.Change) error {
	if err := writeRaised(l.record, changes); err != nil {
		return err
	}
	return cgroup.Apply(changes)
}

// putBack puts limits back after an operation. If they do not fit, or grown is more than keptGrowth, it asks the sentry
// to free memory and tries again, both in the background. Grown returns how many bytes gVisor itself has more than
// before the operation.
func (l *limits) putBack(grown func() int64) {
	if err := l.undo(); err == nil && grown() <= keptGrowth {
		return
	}
	l.later(func(ctx context.Context) { l.settle(ctx, time.Now().Add(l.most), grown) })
}

// putBackWhen is putBack for a restore that goes on. It waits in the background until ready reports true, but no longer
// than unlimitedTime once the program runs.
func (l *limits) putBackWhen(ready func(context.Context) bool) {
	if len(readRaised(l.record)) == 0 {
		return
	}
	l.later(func(ctx context.Context) {
		if !waitUntil(ctx, func(context.Context) bool { return l.runs() }, nil) {
			return
		}
		end := time.Now().Add(l.most)
		if waitUntil(ctx, ready, time.After(unlimitedTime)) {
			l.settle(ctx, end, l.grown)
		}
	})
}

// waitUntil waits until ready reports true, or the time is over. It returns false if ctx ends first.
func waitUntil(ctx context.Context, ready func(context.Context) bool, over <-chan time.Time) bool {
	for !ready(ctx) {
		select {
		case <-over:
			return true
		default:
		}
		if !wait(ctx, reducePause) {
			return false
		}
	}
	return true
}

// later runs f in the background, instead of what runs there.
func (l *limits) later(f func(context.Context)) {
	l.stopBackground()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // until stopBackground
	l.end = cancel
	l.group.Go(func() { f(ctx) })
}

// settle asks the sentry to free memory, and puts limits back as soon as they fit. From end on they have to.
func (l *limits) settle(ctx context.Context, end time.Time, grown func() int64) {
	pause := reducePause
	for try := 1; wait(ctx, pause); try++ {
		err := l.undo()
		if err == nil && (grown() <= keptGrowth || try > reduceTries) {
			return
		}
		if due := !time.Now().Before(end); err != nil && due {
			pause = l.enforce(ctx, grown)
		} else if try <= reduceTries || try%reduceTries == 0 {
			l.free(ctx)
		}
	}
}

// wait waits for d. It returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *limits) free(ctx context.Context) {
	if err := l.reduce(ctx); err != nil && ctx.Err() == nil {
		slog.Warn("the sandbox was not asked to free memory", "record", l.record, "error", err)
	}
}

// enforce puts limits back after the sentry was asked a last time to free memory, whatever is in use: see lower. It
// returns when to look at them again.
func (l *limits) enforce(ctx context.Context, grown func() int64) time.Duration {
	l.free(ctx)
	if !wait(ctx, reducePause) {
		return reducePause
	}
	err := l.undo()
	if err == nil {
		return reducePause
	}
	slog.Warn("limits are above what they were", "record", l.record, "error", err)
	if !l.lower(min(grown(), keptGrowth)) {
		return slowPause
	}
	slog.Error("the sandbox uses more memory than its limit: it is ended", "record", l.record)
	if err := l.kill(); err != nil {
		slog.Error("end a sandbox that uses more memory than its limit", "record", l.record, "error", err)
	}
	return reducePause
}

// lower lowers limits that cannot be put back to spare bytes above what they were. The kernel reclaims what is over
// them, or kills for it in the pod's cgroup. Refused says that the kernel does not do so (cgroup v1).
func (l *limits) lower(spare int64) (refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	low := cgroup.Lower(readRaised(l.record), spare)
	err := l.change(low)
	if err != nil {
		slog.Warn("lower limits", "record", l.record, "error", err)
	}
	return errors.Is(err, unix.EBUSY) && cgroup.Over(low)
}

func (l *limits) undo() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := undoRaised(l.record)
	return err
}

// stopBackground stops the goroutine that puts limits back, and waits for it.
func (l *limits) stopBackground() {
	l.mu.Lock()
	if l.end != nil {
		l.end()
		l.end = nil
	}
	l.mu.Unlock()
	l.group.Wait()
}

// close puts limits back a last time, after the sandbox has ended.
func (l *limits) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stopBackground()
	if err := l.undo(); err != nil {
		slog.Warn("limits stay raised", "record", l.record, "error", err)
	}
}

// undoRaised puts back the limits that a record names. It returns those that it could not put back, and why.
func undoRaised(record string) ([]cgroup.Change, error) {
	left, err := cgroup.Undo(readRaised(record))
	return left, errors.Join(err, writeRaised(record, left))
}

// readRaised returns the recorded changes. If the record cannot be read, it was never completely written, and its
// changes were never made.
func readRaised(record string) (changes []cgroup.Change) {
	data, err := os.ReadFile(record)
	if err != nil {
		return nil
	}
	if err := json.Unmarshal(data, &changes); err != nil {
		slog.Warn("read the record of raised limits", "record", record, "error", err)
	}
	return changes
}

// writeRaised replaces a record as a whole. Without changes it removes the record.
func writeRaised(record string, changes []cgroup.Change) error {
	if len(changes) == 0 {
		if err := os.Remove(record); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("record of raised limits: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(changes)
	if err == nil {
		err = os.WriteFile(record+".tmp", data, 0o600)
	}
	if err == nil {
		err = os.Rename(record+".tmp", record)
	}
	if err != nil {
		return fmt.Errorf("record of raised limits: %w", err)
	}
	return nil
}
