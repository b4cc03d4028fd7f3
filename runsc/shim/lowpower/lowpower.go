// Package lowpower makes a shim cost less while its pod sleeps.
package lowpower

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// After is how long a pod sleeps before its shim saves power. One that wakes sooner needs again what that would
// give up.
const After = time.Second

// room is how much the memory of a shim that saves power grows before its garbage is collected, in bytes.
const room = 2 << 20

// Answers are the answers of this process that stay the same while the pod sleeps.
type Answers interface {
	// Repeat has them repeated: package connections does it.
	Repeat()
	// Stop undoes Repeat.
	Stop()
}

// Mode is how the Go runtime was set before this process saved power. Its methods may be called concurrently.
type Mode struct {
	asleep  func() bool
	answers Answers

	mu        sync.Mutex
	is        bool
	procs     int   // GOMAXPROCS
	gcPercent int   // see debug.SetGCPercent
	limit     int64 // see debug.SetMemoryLimit
}

// New returns the mode of this process, which does not save power. asleep says whether the pod sleeps.
func New(asleep func() bool, answers Answers) *Mode { return &Mode{asleep: asleep, answers: answers} }

// Enter makes this process cost less while the pod sleeps: a node has hundreds of them. It returns the memory that was
// used for entering sleep, which Go would keep for later. It uses one processor, so that containerd's questions, which
// come every second, wake one thread and not several. And it collects garbage only when there is some: by itself Go
// does so every two minutes, which takes as long as many answers. Answers that stay the same are repeated.
func (d *Mode) Enter() {
	if !d.asleep() {
		return
	}
	debug.FreeOSMemory()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.asleep() || d.is { // Leave is called after the pod has ceased to sleep
		return
	}
	d.is, d.procs, d.gcPercent = true, runtime.GOMAXPROCS(1), debug.SetGCPercent(-1)
	d.limit = debug.SetMemoryLimit(goMemory() + room)
	d.answers.Repeat()
}

// Leave undoes Enter.
func (d *Mode) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.is {
		return
	}
	d.is = false
	d.answers.Stop()
	debug.SetMemoryLimit(d.limit)
	debug.SetGCPercent(d.gcPercent)
	runtime.GOMAXPROCS(d.procs)
}

// goMemory returns how much memory the Go runtime holds, counted as its memory limit counts, in bytes.
func goMemory() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64()) //nolint:gosec // far below 2^63
}
