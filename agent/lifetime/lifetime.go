// Package lifetime bounds what a process does by the process's own end: requests, what goes on after
// their answers, and what is done beside them.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// Life is that of an agent. Its methods may be called concurrently.
type Life struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	work sync.WaitGroup
}

// New begins a life. It has the values of ctx, and does not end with ctx.
func New(ctx context.Context) *Life {
	l := &Life{}
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// Context returns a context that is done when the life has ended. Its cause is that of the end.
func (l *Life) Context() context.Context { return l.ctx }

// End ends the life. Only the first cause counts.
func (l *Life) End(cause error) { l.end(cause) }

// Err returns why the life has ended, or nil while it lasts.
func (l *Life) Err() error { return context.Cause(l.ctx) }

// Go runs f beside its caller. See Wait.
func (l *Life) Go(f func()) { l.work.Go(f) }

// Wait waits until all that was begun by Go has returned.
func (l *Life) Wait() { l.work.Wait() }

// Bound returns ctx, ended by the end of the life too. The function returned releases it.
func (l *Life) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Outliving returns a context for work that goes on once the RPC that began it has been answered. It has
// the values of ctx. It ends after d or, if that is earlier, some time after the end of the life.
func (l *Life) Outliving(ctx context.Context, d, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() {
		select {
		case <-time.After(after):
			end(context.Cause(l.ctx))
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		end(nil)
		cancel()
	}
}
