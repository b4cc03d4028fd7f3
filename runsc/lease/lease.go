// Package lease keeps a sandbox paused for only as long as a holder keeps asking for it.
//
// The agent pauses a sandbox while it makes a snapshot of it. If the agent dies, the sandbox must not stay
// paused. So a pause has a holder, and ends after a while unless the holder renews it. The shim, which lives as
// long as the sandbox, keeps the time and resumes the sandbox. The shim also ends the sandbox when the holder no
// longer needs it, and only while the lease is held. What a sandbox does after its lease has run out is in no
// snapshot, and must not be thrown away.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Annotation is the key of a [Request] among the annotations of containerd's call Update. The call carries no
// resources, so that a shim that knows no leases refuses it as an invalid argument.
const Annotation = "diapause.dev/pause-lease"

// Longest bounds how long a lease lasts without being renewed.
const Longest = 5 * time.Minute

// ErrRanOut is the kind of error for a lease that is not held: the sandbox runs, or somebody else holds the
// lease.
var ErrRanOut = errors.New("the lease of the pause has run out: the sandbox runs on")

// ErrInvalid is the kind of error for a malformed request.
var ErrInvalid = errors.New("invalid request for the lease of a pause")

// Verb is what a request asks for.
type Verb string

// The verbs. All except Pause need the lease to be held; for Kill it is enough that it was held until an earlier Kill
// of the same holder.
const (
	Pause  Verb = "pause"  // pauses the sandbox, and takes the lease
	Renew  Verb = "renew"  // extends the lease
	Resume Verb = "resume" // resumes the sandbox, and then releases the lease
	Kill   Verb = "kill"   // ends the sandbox, so that it never runs again
)

// Request is a request of the holder.
type Request struct {
	Verb   Verb          `json:"verb"`
	Holder string        `json:"holder"`
	For    time.Duration `json:"for,omitempty"` // of Pause and Renew: how long the lease lasts from now
}

// Parse parses what String has written.
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
	data, _ := json.Marshal(r) // only strings and numbers: it cannot fail
	return string(data)
}

// Sandbox is the sandbox that a lease keeps paused.
type Sandbox interface {
	// Pause and Resume return once it is known whether the sandbox is paused, even if the context ends before.
	Pause(context.Context) error
	// Resume resumes a paused sandbox. If the sandbox runs, or is gone, that is no error.
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

	turn   chan struct{}        // holds one token while the fields below are in use
	held   atomic.Pointer[hold] // nil: nobody holds it
	killed string               // the holder that has ended the sandbox; empty: nobody
}

// hold is a lease that is held.
type hold struct {
	holder string
	until  time.Time
	timer  *time.Timer
	given  context.CancelFunc // called when the lease is released
}

// New returns the lease of a sandbox, held by nobody. It reports to log when the lease runs out, and what goes
// wrong then.
func New(s Sandbox, log func(string, error)) *Lease {
	l := &Lease{sandbox: s, log: log, turn: make(chan struct{}, 1)}
	l.life, l.end = context.WithCancel(context.Background()) // until Close: a lease outlives each request
	return l
}

// Do carries out a request of the holder. The error is of kind ErrRanOut if the request needs the lease, and
// somebody else or nobody holds it. A holder may ask again to end the sandbox, since the answer may have been lost.
func (l *Lease) Do(ctx context.Context, r Request) error {
	if err := l.wait(ctx); err != nil {
		return err
	}
	defer l.give()
	if r.Verb == Kill && r.Holder == l.killed {
		return nil
	}
	if err := l.over(); err != nil {
		return err
	}
	if r.Verb == Pause {
		return l.pause(ctx, r)
	}
	h := l.held.Load()
	if h == nil || h.holder != r.Holder {
		return fmt.Errorf("%s for %s: %w", r.Verb, r.Holder, ErrRanOut)
	}
	switch r.Verb {
	case Renew:
		h.last(r.For)
		return nil
	case Resume:
		return l.resume(ctx)
	}
	err := l.sandbox.Kill()
	if err == nil {
		l.free()
		l.killed = r.Holder
	}
	return err
}

// pause takes the lease before it pauses, because a pause that fails may have paused the sandbox all the same.
func (l *Lease) pause(ctx context.Context, r Request) error {
	if h := l.held.Load(); h != nil && h.holder != r.Holder {
		return fmt.Errorf("%w: %s holds the lease", ErrInvalid, h.holder)
	}
	l.free()
	ctx2, given := context.WithCancel(l.life)
	h := &hold{holder: r.Holder, timer: time.NewTimer(r.For), given: given}
	h.last(r.For)
	l.held.Store(h)
	l.watches.Go(func() { l.watch(ctx2, h) })
	return l.sandbox.Pause(ctx)
}

// Held reports, without waiting, whether somebody holds the lease. While nobody does, the sandbox is not paused by it.
func (l *Lease) Held() bool { return l.held.Load() != nil }

// Free calls f, by which somebody else resumes the sandbox, and releases the lease. If f fails, the lease stays.
func (l *Lease) Free(ctx context.Context, f func() error) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	if err := f(); err != nil {
		return err
	}
	l.free()
	return nil
}

// Break resumes the sandbox and releases the lease, whoever holds it. If nobody does, it does nothing. If the sandbox
// cannot be resumed, the lease stays, and runs out.
func (l *Lease) Break(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	if !l.Held() {
		return nil
	}
	return l.resume(ctx)
}

// resume resumes the sandbox, and then releases the lease.
func (l *Lease) resume(ctx context.Context) error {
	if err := l.sandbox.Resume(ctx); err != nil {
		return err
	}
	l.free()
	return nil
}

// Close ends the lease together with its sandbox, and waits for its goroutines.
func (l *Lease) Close() {
	l.end()
	l.watches.Wait()
}

// watch resumes the sandbox when its lease has run out without being renewed or released.
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

// retryPause is the time between attempts to resume the sandbox.
const retryPause = time.Second

func (l *Lease) ranOut(ctx context.Context, h *hold) bool {
	if err := l.take(ctx); err != nil {
		return true
	}
	defer l.give()
	if l.held.Load() != h {
		return true
	}
	if time.Now().Before(h.until) {
		return false
	}
	l.log("the lease of the sandbox's pause was not renewed: it runs on", nil)
	for {
		err := l.resume(l.life)
		if err == nil {
			return true
		}
		l.log("resume after the end of a lease; it is retried", err)
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
	if h := l.held.Swap(nil); h != nil {
		h.given()
	}
}

// take takes the turn, unless the sandbox has ended.
func (l *Lease) take(ctx context.Context) error {
	if err := l.over(); err != nil {
		return err
	}
	return l.wait(ctx)
}

func (l *Lease) over() error {
	if l.life.Err() != nil {
		return fmt.Errorf("the sandbox has ended: %w", ErrRanOut)
	}
	return nil
}

// wait waits for the turn. A caller that no longer waits never gets it: a pause that comes late would hold up a sandbox
// for a request that has been given up.
func (l *Lease) wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Lease) give() { <-l.turn }
