package lifetime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"diapause.dev/agent/lifetime"
)

var errStopping = errors.New("stopping")

// TestBound checks that a request ends with its caller or with the agent, and that the cause says which.
func TestBound(t *testing.T) {
	l := lifetime.New(t.Context())
	rpc, done := context.WithCancel(t.Context())
	byCaller, cancel := l.Bound(rpc)
	defer cancel()
	byLife, cancel := l.Bound(t.Context())
	defer cancel()
	done()
	<-byCaller.Done()
	if byLife.Err() != nil || l.Err() != nil {
		t.Errorf("another request ended too: %v, %v", byLife.Err(), l.Err())
	}
	beside := false
	l.Go(func() { <-l.Context().Done(); beside = true })
	l.End(errStopping)
	l.End(errors.New("later"))
	<-byLife.Done()
	if l.Wait(); !beside || !errors.Is(context.Cause(byLife), errStopping) || !errors.Is(l.Err(), errStopping) {
		t.Errorf("%v, %v, %v", beside, context.Cause(byLife), l.Err())
	}
}

// TestOutliving checks that work may go on for a short time after the agent is told to stop, and no longer.
func TestOutliving(t *testing.T) {
	l := lifetime.New(t.Context())
	rpc, done := context.WithCancel(t.Context())
	ctx, cancel := l.Outliving(rpc, time.Hour, 10*time.Millisecond)
	defer cancel()
	if done(); ctx.Err() != nil {
		t.Error("it ended with the RPC")
	}
	l.End(errStopping)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errStopping) {
		t.Error(context.Cause(ctx))
	}
}
