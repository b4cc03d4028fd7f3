package restore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/loading"
	"diapause.dev/agent/recorded"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/gofer"
)

// restore is one sandbox being restored.
type restore struct {
	record

	revived  bool           // an earlier agent has prepared it
	image    *loading.Image // set by opener.open or registry.recall, before anybody else has the restore
	meta     *snapshot.Meta // of the snapshot; set by opener.open
	volumes  []string       // names of the snapshot's volumes
	payloads []string       // directories in the snapshot that the kubelet has written (kubelet.Payload)
	start    time.Time

	may     chan struct{} // closed when its pod, which sleeps, may be woken
	decided chan struct{} // closed when that wakes, if its kernel is loaded beforehand

	waking sync.Mutex  // held while the pod's reminder is written or removed, see package asleep
	fed    atomic.Bool // the sandbox may have got a byte of its image

	account gofer.Account // of what this agent has written into the sandbox's memory

	concluded sync.Once     // see conclude
	ended     chan struct{} // closed when the sandbox has everything, or has failed or gone

	mu       sync.Mutex // guards what follows, and record.Loaded
	state    state
	err      error // why the restore fails
	serving  int   // connections of its sidecar
	ahead    bool  // its kernel is, or was, loaded before the pod wakes
	admitted bool  // the pod sleeps and may be woken, or is being woken: see Unloaded
	woken    bool  // the pod was woken, and runs
	died     bool  // a sandbox whose kernel was loaded before has gone and had no memory
}

// newRestore returns a restore that has just begun.
func newRestore(rec record) *restore {
	return &restore{
		record: rec, ended: make(chan struct{}), may: make(chan struct{}), decided: make(chan struct{}), start: time.Now(),
	}
}

// state is how far a restore has come.
type state int

// States of a restore.
const (
	reading state = iota // the sandbox reads its image
	loaded               // root file systems only: all containers have their files, and may read them again
	failing              // the shim says that the restore has failed; its sidecar is still there
	ending               // the sandbox ends, or is being ended, because its memory or files cannot be read
	ended                // nothing is served any longer
)

// event is what happens to a restore.
type event int

// Events of a restore.
const (
	allLoaded  event = iota // the shim says that all containers have all their files
	shimFailed              // the shim says that the restore has failed. The shim ends the sandbox
	filesLost               // the sandbox has asked for memory or files that cannot be read
	over                    // the sandbox has all its memory, has gone, or will not be restored
)

// transitions maps a state and an event to the next state. An event that is missing changes nothing.
var transitions = map[state]map[event]state{
	reading: {allLoaded: loaded, shimFailed: failing, filesLost: ending, over: ended},
	loaded:  {shimFailed: failing, filesLost: ending, over: ended},
	failing: {over: ended},
	ending:  {shimFailed: failing, over: ended},
	ended:   {},
}

// on applies an event, and reports whether it has changed the state. The caller holds r.mu.
func (r *restore) on(e event) bool {
	next, ok := transitions[r.state][e]
	if ok {
		r.state = next
	}
	return ok
}

// gone returns the error of a restore whose sandbox has ended. The agent cannot tell for sure whether the kernel killed
// the sandbox because of its memory limit: the sandbox's cgroup may be gone, too.
func (r *restore) gone() error {
	var limit string
	if r.Limit > 0 {
		limit = fmt.Sprintf(", under a memory limit of %d MiB: if it was killed for that, raise the limit", r.Limit>>20)
	}
	return fmt.Errorf("restore of %s: %w before it had all its memory%s", r.Key, errkind.ErrSandboxExited, limit)
}

// hasAll reports whether the sandbox has had everything, though it may ask again.
func (r *restore) hasAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Loaded
}

// note keeps the first reason why the restore must fail.
func (r *restore) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// failure returns the reason noted, or nil.
func (r *restore) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// seenThrough reports whether this agent has seen all that the sandbox asked for, without a failure.
func (r *restore) seenThrough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err == nil && !r.revived
}

// conclude wakes waiters with the restore's outcome. Only the first call counts.
func (r *restore) conclude(err error, m Metrics, log *slog.Logger) {
	r.concluded.Do(func() {
		r.mu.Lock()
		if !errors.Is(r.err, err) { // otherwise it was noted before
			r.err = errors.Join(r.err, err)
		}
		err, read, took := r.err, r.image.Read(), time.Since(r.start)
		r.mu.Unlock()
		m.Restore(err, took, read)
		log.Info("restore ended", "request", r.Request, "snapshot", r.Key.String(), "took", took, "error", err)
		close(r.ended)
	})
}

// cause returns why a restore, which may be nil, failed if the agent itself found that out, or nil. A failure that the
// shim reported is left out: the shim has told containerd, too.
func (r *restore) cause() error {
	if r == nil {
		return nil
	}
	err := r.failure()
	if errors.As(err, new(toldByShim)) {
		return nil
	}
	return err
}

// toldByShim is the reason that the shim reported for a failed restore.
type toldByShim struct{ error }

// Unwrap returns what the shim said.
func (e toldByShim) Unwrap() error { return e.error }

// begun notes that a pod that sleeps begins to load. It may have slept since its restore was prepared, and its shim may
// be of a version that does not ask whether it may be woken.
func (r *restore) begun() {
	r.admitted = true
	if r.serving == 0 {
		r.start = time.Now()
	}
}

// woke notes that the pod was woken. It reports whether the sandbox has gone and had no memory: see source.endedAhead.
func (r *restore) woke() (died bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = true
	return r.died && r.serving == 0
}

// feed must succeed before a sandbox gets the first byte of its image or, if its kernel is loaded before the wake, of
// the memory: from then on the pod may run.
func (r *restore) feed(m *asleep.Reminders) error {
	if r.fed.Load() {
		return nil
	}
	r.waking.Lock()
	defer r.waking.Unlock()
	if m.Failed(r.Pod.UID, r.SandboxID) { // its sidecar has found the next agent before it has ended
		return fmt.Errorf("sandbox %s of pod %s: %w", r.SandboxID, r.Pod, errkind.ErrSandboxExited)
	}
	if err := m.Forget(r.Pod); err != nil {
		return err
	}
	r.fed.Store(true)
	return nil
}

// maxMemory bounds what a snapshot can say of its memory, in bytes.
const maxMemory = 1 << 50

// memory returns how many bytes of memory the sandbox takes once it has loaded everything.
func (r *restore) memory() int64 {
	switch {
	case r.meta == nil: // it has
		return 0
	case r.meta.Memory > 0:
		return min(r.meta.Memory, maxMemory) + recorded.SandboxOverhead
	}
	return min(max(r.image.Total(), 0), maxMemory) + recorded.SandboxOverhead
}
