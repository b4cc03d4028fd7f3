package capture

import (
	"context"
	"sync"
)

// meanwhile is work to be done while the sandbox is paused, in parallel with the capture of its pages.
type meanwhile struct {
	work  func(context.Context) error
	begun sync.Once
	done  chan struct{} // closed when the work has ended
	err   error         // its result, once done is closed
	ctx   context.Context
	end   context.CancelFunc
}

// newMeanwhile returns work that has not begun: see Options.Meanwhile.
func newMeanwhile(f func(context.Context) error) *meanwhile {
	m := &meanwhile{work: f, done: make(chan struct{})}
	m.ctx, m.end = context.WithCancel(context.Background()) // until the sentry hangs up
	return m
}

// begin starts the work. It is called when the sentry begins to save its memory, its last step.
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

// wait starts the work if it has not begun, and waits for it.
func (m *meanwhile) wait() error {
	if m == nil {
		return nil
	}
	m.begin()
	<-m.done
	return m.err
}

// stop cancels the work and waits for it. Work that has not begun never does.
func (m *meanwhile) stop() {
	if m == nil {
		return
	}
	m.end()
	m.begun.Do(func() { close(m.done) })
	<-m.done
}

// MeanwhileErr returns the error of the work of Options.Meanwhile. While the work is running it returns nil.
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
