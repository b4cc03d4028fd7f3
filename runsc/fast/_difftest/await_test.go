package difftest

import (
	"context"
	"errors"
	"strings"
	"testing"

	fast "gvisor.dev/gvisor/pkg/difftest/fast/graph"
)

// awaiting is a context whose values come while objects are read.
type awaiting struct {
	context.Context
	await func() error
}

func (a awaiting) Await() error { return a.await() }

// saved returns the bytes of a graph with callbacks.
func saved(t *testing.T) []byte {
	t.Helper()
	for seed := range uint64(*graphs) {
		data, err := fast.Save(fast.Make(randomData(seed)))
		if err != nil {
			continue
		}
		if _, calls, _, err := fast.Load(data); err == nil && len(calls) > 0 {
			return data
		}
	}
	t.Fatal("no graph has callbacks")
	return nil
}

// TestAwait: a load waits once, before its first callback.
func TestAwait(t *testing.T) {
	var (
		log    fast.Log
		waits  int
		before []string
	)
	_, rest, err := fast.LoadWith(awaiting{t.Context(), func() error {
		waits, before = waits+1, append(before, log.Calls...)
		return nil
	}}, &log, saved(t))
	if err != nil || rest != 0 {
		t.Errorf("load: %v, %d bytes left", err, rest)
	}
	if waits != 1 || len(before) > 0 || len(log.Calls) == 0 {
		t.Errorf("waited %d times; callbacks before that: %q; of all %q", waits, before, log.Calls)
	}
}

// TestAwaitFails: without its values a load fails, and no callback runs.
func TestAwaitFails(t *testing.T) {
	var log fast.Log
	ctx := awaiting{t.Context(), func() error { return errors.New("nothing has come") }}
	_, _, err := fast.LoadWith(ctx, &log, saved(t))
	if err == nil || !strings.Contains(err.Error(), "nothing has come") || len(log.Calls) > 0 {
		t.Errorf("load: %v; callbacks: %q", err, log.Calls)
	}
}
