package rollback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/runsc/durable"
)

// lookEvery is how often an agent looks how far its cluster has come.
const lookEvery = time.Minute

// Watcher keeps the mark of a node, in a file. Its methods may be called concurrently.
type Watcher struct {
	Config
	path string

	turn sync.Mutex // is held while the mark is looked at
	mark *mark      // nil: not read yet

	told atomic.Pointer[verdict]
}

// verdict is what a look has found.
type verdict struct {
	err     error  // of kind ErrRolledBack, or nil
	cluster string // which stores the controller does not sweep
}

// NewWatcher returns a watcher that keeps its mark in the file at path. The file must survive a reboot.
func NewWatcher(c Config, path string) *Watcher { return &Watcher{Config: c, path: path} }

// Run looks from time to time until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := w.Check(ctx); err != nil && !errors.Is(err, ErrRolledBack) && ctx.Err() == nil {
			w.Logger.Debug("it is not known how far the cluster has come", "error", err)
		}
	}, lookEvery, 0.2, true)
}

// Check returns nil if the cluster remembers everything that this node has seen of it. If not, the error is of kind
// ErrRolledBack: nothing may be removed for want of a PodSnapshot.
func (w *Watcher) Check(ctx context.Context) error {
	w.turn.Lock()
	defer w.turn.Unlock()
	if err := w.read(); err != nil {
		return err
	}
	s, err := w.state(ctx)
	if err != nil {
		return err
	}
	err = s.check(*w.mark, "this node", w.now())
	before := w.told.Swap(&verdict{err: err, cluster: s.lease.Annotations[podsnapshotv1.AnnotationNotSwept]})
	switch {
	case err == nil:
		return w.write(s.line.end())
	case before == nil || before.err == nil:
		w.tell(err)
	}
	return err
}

// MaySweep returns nil if the store at a location may be swept. It is on this node's disk.
func (w *Watcher) MaySweep(ctx context.Context, _ string) error { return w.Check(ctx) }

// Stopped returns 1 if nothing is removed from this node for want of a PodSnapshot, and 0 otherwise.
func (w *Watcher) Stopped() int64 {
	if v := w.told.Load(); v != nil && v.err != nil {
		return 1
	}
	return 0
}

// NotSwept returns what is not swept, and why, as of the last look. It is empty if everything is.
func (w *Watcher) NotSwept() string {
	v := w.told.Load()
	switch {
	case v == nil:
		return ""
	case v.err != nil:
		return v.err.Error()
	case v.cluster != "":
		return fmt.Sprintf("the controller does not sweep %.500s: %v: see the events of its node", v.cluster, ErrRolledBack)
	}
	return ""
}

// read reads the mark, once. The caller has the turn.
func (w *Watcher) read() error {
	if w.mark != nil {
		return nil
	}
	m := new(mark)
	b, err := os.ReadFile(w.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read how far the cluster had come: %w", err)
	default:
		if err := json.Unmarshal(b, m); err != nil {
			return fmt.Errorf("%s is damaged, remove it: %w", w.path, err)
		}
	}
	w.mark = m
	return nil
}

// write keeps a new mark. The caller has the turn.
func (w *Watcher) write(m mark) error {
	var err error
	if m.Term == w.mark.Term && m.Count == w.mark.Count || m.Count == 0 {
		return nil
	}
	if m.Time, err = w.Objects.Clock.Now(); err != nil {
		return nil // with the next look
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = durable.Replace(w.path, b)
	}
	if err != nil {
		return fmt.Errorf("write down how far the cluster has come: %w", err)
	}
	w.mark = &m
	return nil
}
