// Package lifetime ends work when the process ends: requests, work that goes on after their answers, and background
// work.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// Life is the lifetime of an agent. Its methods may be called concurrently.
type Life struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	work sync.WaitGroup
}

// New begins a life. It has the values of ctx, but does not end with ctx.
func New(ctx context.Context) *Life {
	l := &Life{}
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// Context returns a context that is done when the life has ended. Its cause is the cause given to End.
func (l *Life) Context() context.Context { return l.ctx }

// End ends the life. Only the first cause counts.
func (l *Life) End(cause error) { l.end(cause) }

// Err returns why the life has ended, or nil while it lasts.
func (l *Life) Err() error { return context.Cause(l.ctx) }

// Go runs f in a goroutine, for which Wait waits.
func (l *Life) Go(f func()) { l.work.Go(f) }

// Wait waits until everything that Go started has returned.
func (l *Life) Wait() { l.work.Wait() }

// Bound returns a context that ends with ctx or with the life. The caller must call the returned function.
func (l *Life) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Outliving returns a context for work that goes on after the RPC that started it has been answered. It has the values
// of ctx. It ends d from now, or a time of after past the end of the life, whichever is earlier.
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
