package cluster

import (
	"context"
	"testing"
	"time"
)

// limit ends what a test waits for.
const limit = 3 * time.Minute

// eventually calls f until it returns nil, or the context ends.
func eventually(ctx context.Context, t *testing.T, f func() error) {
	t.Helper()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
