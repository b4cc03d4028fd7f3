package capture

import (
	"context"
	"sync"
)

// meanwhile is work that is done while the sandbox is paused, beside the capture of its pages.
type meanwhile struct {
	work  func(context.Context) error
	begun sync.Once
	done  chan struct{} // closed when the work has ended
	err   error         // how, once done is closed
	ctx   context.Context
	end   context.CancelFunc
}

// Meanwhile has f called once the sandbox is paused and has written to its files what it held back, and
// keeps the sandbox paused until f has returned. An error of f makes the save fail, and the sandbox runs on. The
// context ends when the sentry hangs up. Meanwhile is called before Serve, at most once.
func (c *Capture) Meanwhile(f func(context.Context) error) {
	m := &meanwhile{work: f, done: make(chan struct{})}
	m.ctx, m.end = context.WithCancel(context.Background())
	c.meanwhile = m
}

// begin begins the work. It is called when the sentry saves its memory, which it does last.
func (m *meanwhile) begin() {
	if m == nil {
		return
	}
	m.begun.Do(func() {
		go func() {
			defer close(m.done)
			m.err = m.work(m.ctx)
		}()
	})
}

// wait waits for the work, which it begins if need be.
func (m *meanwhile) wait() error {
	if m == nil {
		return nil
	}
	m.begin()
	<-m.done
	return m.err
}

// stop ends the work, and waits for it. If it has not begun, it never does.
func (m *meanwhile) stop() {
	if m == nil {
		return
	}
	m.end()
	m.begun.Do(func() { close(m.done) })
	<-m.done
}

// MeanwhileErr returns why what was to be done while the sandbox was paused was not, as far as that is
// known.
func (c *Capture) MeanwhileErr() error {
	if c.meanwhile == nil {
		return nil
	}
	select {
	case <-c.meanwhile.done:
		return c.meanwhile.err
	default:
		return nil
	}
}
