package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is a connection whose sending direction can be ended alone.
type Stream interface {
	net.Conn
	CloseWrite() error
}

// end is one end of a relay.
type end struct {
	Stream
	patience time.Duration // how long it may be silent after the other end has sent everything
	last     atomic.Bool   // the other end has sent everything
	broken   bool          // a read failed
}

// Read reads. If the end has been silent for too long, Read returns io.EOF.
func (e *end) Read(p []byte) (int, error) {
	if e.last.Load() {
		if err := e.SetReadDeadline(time.Now().Add(e.patience)); err != nil {
			return 0, err
		}
	}
	n, err := e.Stream.Read(p)
	if e.last.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	e.broken = err != nil && err != io.EOF
	return n, err
}

// finish tells the peer that nothing more comes. Errors are ignored: a peer that is gone need not know.
func (e *end) finish() {
	e.last.Store(true)
	e.CloseWrite()
	e.SetReadDeadline(time.Now().Add(e.patience))
}

// reset closes an end so that its peer sees a broken connection, if the kind of connection allows that.
func (e *end) reset() error {
	if c, ok := e.Stream.(*net.TCPConn); ok {
		return errors.Join(c.SetLinger(0), c.Close())
	}
	return e.Close()
}

// relay copies between two ends until both directions have ended or ctx is done, and closes the ends. If an end
// breaks, relay resets both. An end that no longer receives may still send, so a failed write ends only one
// direction. Relay returns the first error.
func relay(ctx context.Context, a, b *end) error {
	var once sync.Once
	shut := func(f func(*end) error) {
		once.Do(func() {
			f(a)
			f(b)
		})
	}
	defer context.AfterFunc(ctx, func() { shut((*end).Close) })()
	errs := make(chan error, 2)
	pipe := func(to, from *end) {
		_, err := io.Copy(to.Stream, from)
		if from.broken {
			shut((*end).reset)
		}
		to.finish()
		errs <- err
	}
	go pipe(a, b)
	go pipe(b, a)
	err, second := <-errs, <-errs
	if err == nil {
		err = second
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	shut((*end).Close)
	return err
}
