package loading

import (
	"log/slog"
	"sync/atomic"
	"time"

	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/snapshots"
)

// Config is what loading works on.
type Config struct {
	Readers *snapshots.Readers
	Pace    *pace.Pace // by which loading ahead of need gives way
	Life    *lifetime.Life
	Logger  *slog.Logger
}

// Loader is what all sandboxes of this node share that load their images. Its methods may be called concurrently.
type Loader struct {
	Config
	hurried atomic.Int64 // see hurry; in nanoseconds since 1970
}

// New returns the loader of a node.
func New(c Config) *Loader { return &Loader{Config: c} }

// SandboxIsCreated notes that a sandbox is being created, which needs the processors.
func (l *Loader) SandboxIsCreated() { l.hurry(standard.createTime) }

// hurry notes that some sandbox of this node needs the processors for so long.
func (l *Loader) hurry(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for {
		now := l.hurried.Load()
		if now >= until || l.hurried.CompareAndSwap(now, until) {
			return
		}
	}
}

// inHurry reports whether a time that was passed to hurry is not over.
func (l *Loader) inHurry() bool { return time.Now().UnixNano() < l.hurried.Load() }
