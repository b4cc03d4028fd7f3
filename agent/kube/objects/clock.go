package objects

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// MaxSkew is how far this node's clock may differ from the API server's. Beyond it, this node deletes nothing that is
	// merely old.
	MaxSkew = time.Minute
	// maxSilence is how old the API server's last answer may be. The controller asks for its Lease every few seconds. An
	// agent asks for something before it judges an age.
	maxSilence = 2 * time.Minute
	// maxTrip is how long an answer may take whose Date is believed.
	maxTrip = 5 * time.Second
)

// ErrClock is the kind of error if it is not certain what time it is.
var ErrClock = errors.New("it is not certain what time it is")

// Clock tells the API server's time, by the header Date of its answers. No node's clock decides what is old, because it
// may be wrong, or jump. The times that the API server writes into objects are of the same clock. Its methods may be
// called concurrently.
type Clock struct {
	local func() time.Time

	mu    sync.Mutex
	date  time.Time // of the last answer, by the API server's clock; zero: there was none
	heard time.Time // when that came; only its monotonic reading is used
}

// NewClock returns a clock that has not heard the API server yet. Local is this node's clock.
func NewClock(local func() time.Time) *Clock { return &Clock{local: local} }

// Listen returns a transport that learns the time from what next is answered.
func (c *Clock) Listen(next http.RoundTripper) http.RoundTripper { return listener{c, next} }

// listener implements http.RoundTripper.
type listener struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := time.Now()
	answer, err := l.next.RoundTrip(r)
	if err == nil {
		l.clock.hear(answer, asked)
	}
	return answer, err
}

// WrappedRoundTripper lets client-go see the transport below.
func (l listener) WrappedRoundTripper() http.RoundTripper { return l.next }

// hear takes the time from an answer. Errors do not count: what stands between this agent and the API server may have
// sent them, and has a clock of its own.
func (c *Clock) hear(answer *http.Response, asked time.Time) {
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil || answer.StatusCode >= http.StatusMultipleChoices || time.Since(asked) > maxTrip {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.date, c.heard = date, time.Now()
}

// Now returns the API server's time, to a second or so. If the API server has been silent for too long, it returns an
// error of kind ErrClock.
func (c *Clock) Now() (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	silence := time.Since(c.heard)
	if c.date.IsZero() || silence > maxSilence {
		return time.Time{}, fmt.Errorf("%w: the API server has not answered for %v", ErrClock, maxSilence)
	}
	return c.date.Add(silence), nil
}

// Skew returns how far this node's clock is ahead of the API server's. If that cannot be known now, it returns an error
// of kind ErrClock.
func (c *Clock) Skew() (time.Duration, error) {
	now, err := c.Now()
	if err != nil {
		return 0, err
	}
	return c.local().Sub(now), nil
}

// Agreed returns the API server's time. If this node's clock differs from that by more than MaxSkew, one of the two is
// wrong: it returns an error of kind ErrClock.
func (c *Clock) Agreed() (time.Time, error) {
	now, err := c.Now()
	if err != nil {
		return time.Time{}, err
	}
	if skew := c.local().Sub(now); skew.Abs() > MaxSkew {
		return time.Time{}, fmt.Errorf("%w: this node's clock is %v %s the API server's, and may differ by %v: set the "+
			"clock that is wrong", ErrClock, skew.Abs().Round(time.Second), direction(skew), MaxSkew)
	}
	return now, nil
}

func direction(skew time.Duration) string {
	if skew > 0 {
		return "ahead of"
	}
	return "behind"
}
