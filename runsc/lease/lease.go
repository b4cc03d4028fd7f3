// Package lease keeps a sandbox paused for no longer than somebody asks for it, again and again.
//
// The agent pauses a sandbox while it makes a snapshot of it, and must not leave it so when it dies. So a
// pause has a holder, and ends after a while unless the holder renews it. The shim, which lives as long as
// the sandbox, keeps the time and resumes the sandbox. It is also the one to end a sandbox that the
// holder no longer needs: what a sandbox has done since a lease ran out is not in any snapshot, and is not thrown
// away.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Annotation is the key of a [Request] among the annotations of containerd's call Update. The call carries
// no resources: a shim that knows no leases refuses it as an invalid argument.
const Annotation = "diapause.dev/pause-lease"

// Longest bounds how long a lease lasts without being renewed.
const Longest = 5 * time.Minute

// ErrRanOut is the kind of error of a lease that is not held: the sandbox runs, or is somebody else's.
var ErrRanOut = errors.New("the lease of the pause has run out: the sandbox runs on")

// ErrInvalid is the kind of error of a request that makes no sense.
var ErrInvalid = errors.New("invalid request for the lease of a pause")

// Verb is what is asked for.
type Verb string

// What can be asked for. All but Pause need the lease to be held.
const (
	Pause  Verb = "pause"  // pauses the sandbox, and takes the lease
	Renew  Verb = "renew"  // has the lease last longer
	Resume Verb = "resume" // resumes the sandbox, and gives the lease back
	Kill   Verb = "kill"   // ends the sandbox, which does not run again
)

// Request is a request of the holder.
type Request struct {
	Verb   Verb          `json:"verb"`
	Holder string        `json:"holder"`
	For    time.Duration `json:"for,omitempty"` // of Pause and Renew: how long the lease lasts from now
}

// Parse reads what String has written.
func Parse(s string) (r Request, err error) {
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		return r, fmt.Errorf("%w: %.200q: %w", ErrInvalid, s, err)
	}
	timed := r.Verb == Pause || r.Verb == Renew
	known := timed || r.Verb == Resume || r.Verb == Kill
	if !known || r.Holder == "" || timed && (r.For <= 0 || r.For > Longest) {
		return r, fmt.Errorf("%w: %.200q", ErrInvalid, s)
	}
	return r, nil
}

// String returns the request as Parse reads it.
func (r Request) String() string {
	data, _ := json.Marshal(r) // strings and numbers alone
	return string(data)
}

// Sandbox is what a lease is of.
type Sandbox interface {
	Pause(context.Context) error
	// Resume lets a paused sandbox run. One that runs, or is gone, is no error.
	Resume(context.Context) error
	Kill() error
}

// Lease is the lease of one sandbox's pause. Its methods may be called concurrently.
type Lease struct {
	sandbox Sandbox
	log     func(string, error)
	life    context.Context
	end     context.CancelFunc
	watches sync.WaitGroup

	turn chan struct{} // holds one token while what follows is used
	held *hold         // nil: nobody holds it
}

// hold is a lease that is held.
type hold struct {
	holder string
	until  time.Time
	timer  *time.Timer
	given  context.CancelFunc // given back
}

// New returns the lease of a sandbox, held by nobody. What goes wrong when it has run out is told to log.
func New(s Sandbox, log func(string, error)) *Lease {
	l := &Lease{sandbox: s, log: log, turn: make(chan struct{}, 1)}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// Do does what the holder asks for. Its error is of kind ErrRanOut if that needs the lease, and it is
// held by somebody else or by nobody.
func (l *Lease) Do(ctx context.Context, r Request) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	if r.Verb == Pause {
		return l.pause(ctx, r)
	}
	if l.held == nil || l.held.holder != r.Holder {
		return fmt.Errorf("%s for %s: %w", r.Verb, r.Holder, ErrRanOut)
	}
	switch r.Verb {
	case Renew:
		l.held.last(r.For)
		return nil
	case Resume:
		l.free()
		return l.sandbox.Resume(ctx)
	}
	err := l.sandbox.Kill()
	if err == nil {
		l.free()
	}
	return err
}

// pause takes the lease first: a pause that fails may have paused the sandbox all the same.
func (l *Lease) pause(ctx context.Context, r Request) error {
	if l.held != nil && l.held.holder != r.Holder {
		return fmt.Errorf("%w: %s holds the lease", ErrInvalid, l.held.holder)
	}
	l.free()
	ctx2, given := context.WithCancel(l.life)
	l.held = &hold{holder: r.Holder, timer: time.NewTimer(r.For), given: given}
	l.held.last(r.For)
	h := l.held
	l.watches.Go(func() { l.watch(ctx2, h) })
	return l.sandbox.Pause(ctx)
}

// Free has nobody hold the lease, for somebody else resumes the sandbox by f.
func (l *Lease) Free(ctx context.Context, f func() error) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	l.free()
	return f()
}

// Close gives the lease up with its sandbox, and waits for what it has going.
func (l *Lease) Close() {
	l.end()
	l.watches.Wait()
}

// watch resumes the sandbox when a lease has run out that was neither renewed nor given back.
func (l *Lease) watch(ctx context.Context, h *hold) {
	defer h.timer.Stop()
	for {
		select {
		case <-h.timer.C:
		case <-ctx.Done():
			return
		}
		if l.ranOut(ctx, h) {
			return
		}
	}
}

// retryPause is how long a resume that failed waits to be tried again.
const retryPause = time.Second

func (l *Lease) ranOut(ctx context.Context, h *hold) bool {
	if err := l.take(ctx); err != nil {
		return true
	}
	defer l.give()
	if l.held != h {
		return true
	}
	if time.Now().Before(h.until) {
		return false
	}
	l.log("nobody has renewed the lease of the sandbox's pause: it runs on", nil)
	l.free()
	for {
		err := l.sandbox.Resume(l.life)
		if err == nil {
			return true
		}
		l.log("resume after the end of a lease; it is tried again", err)
		select {
		case <-time.After(retryPause):
		case <-l.life.Done():
			return true
		}
	}
}

func (h *hold) last(d time.Duration) {
	h.until = time.Now().Add(d)
	h.timer.Reset(d)
}

func (l *Lease) free() {
	if l.held != nil {
		l.held.given()
		l.held = nil
	}
}

func (l *Lease) take(ctx context.Context) error {
	if err := l.life.Err(); err != nil {
		return fmt.Errorf("the sandbox has ended: %w", ErrRanOut)
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Lease) give() { <-l.turn }
