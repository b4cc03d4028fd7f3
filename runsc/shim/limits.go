package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"diapause.dev/runsc/cgroup"
	"github.com/containerd/log"
)

// The files in a sandbox's bundle that record which limits are raised: those of memory, and those of processor time.
// They outlive the shim. If the shim dies, containerd runs a command in the bundle to remove what is left of the
// sandbox, and that command puts the limits back.
const (
	raisedMemory = "diapause-raised"
	raisedCPU    = "diapause-raised-cpu"
)

// After an operation the sentry is asked to free memory until it uses about as much as before. This takes two to four
// tries. reduceTries bounds the tries, and reducePause is the pause in between. A limit that does not fit after that
// is lowered to what is in use, and tried again every slowPause.
const (
	reduceTries = 8
	reducePause = time.Second
	slowPause   = 30 * time.Second
)

// limits raises a sandbox's limits for the time of an operation. Only one operation at a time may do so.
type limits struct {
	record string // path of the file that says which are raised
	reduce func(context.Context) error
	group  sync.WaitGroup

	mu     sync.Mutex
	end    context.CancelFunc // stops the goroutine that puts limits back; nil: there is none
	closed bool
}

// raise makes changes that last until putBack. Changes of an earlier operation that are not undone yet stay.
func (l *limits) raise(changes []cgroup.Change) error {
	l.rest()
	l.mu.Lock()
	defer l.mu.Unlock()
	changes = cgroup.Merge(readRaised(l.record), changes)
	if len(changes) == 0 {
		return nil
	}
	if err := l.change(changes); err != nil {
		_, undone := undoRaised(l.record)
		return errors.Join(err, undone)
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

// putBack puts limits back after an operation. If they do not fit, or small reports false, it asks the sentry to free
// memory and tries again, both in the background. Small reports whether the sentry has little memory.
func (l *limits) putBack(small func() bool) {
	if err := l.undo(); err == nil && small() {
		return
	}
	l.later(func(ctx context.Context) { l.settle(ctx, small) })
}

// putBackWhen is putBack for an operation that goes on: it waits in the background until ready reports true.
func (l *limits) putBackWhen(ready func(context.Context) bool) {
	if len(readRaised(l.record)) == 0 {
		return
	}
	l.later(func(ctx context.Context) {
		for !ready(ctx) {
			if !wait(ctx, reducePause) {
				return
			}
		}
		l.settle(ctx, func() bool { return true })
	})
}

// later runs f in the background.
func (l *limits) later(f func(context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.end = cancel
	l.group.Go(func() { f(ctx) })
}

// settle asks the sentry to free memory, and puts limits back as soon as they fit.
func (l *limits) settle(ctx context.Context, small func() bool) {
	pause := reducePause
	for try := 1; wait(ctx, pause); try++ {
		err := l.undo()
		if err == nil && (small() || try > reduceTries) {
			return
		}
		if try <= reduceTries {
			l.free(ctx)
			continue
		}
		l.tighten(err)
		pause = slowPause
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
		log.L.WithError(err).Warnf("the sandbox of %s was not asked to free memory", l.record)
	}
}

// tighten lowers limits that cannot be put back yet to what is in use.
func (l *limits) tighten(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log.L.WithError(why).Warnf("limits in %s are above what they were", l.record)
	if err := l.change(cgroup.Tighten(readRaised(l.record))); err != nil {
		log.L.WithError(err).Warnf("bring limits in %s down", l.record)
	}
}

func (l *limits) undo() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := undoRaised(l.record)
	return err
}

// rest stops the goroutine that puts limits back, and waits for it.
func (l *limits) rest() {
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
	l.rest()
	if err := l.undo(); err != nil {
		log.L.WithError(err).Warnf("limits in %s stay raised", l.record)
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
		log.L.WithError(err).Warnf("record of raised limits %s", record)
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
