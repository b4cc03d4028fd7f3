package cluster

import (
	"context"
	"testing"
	"time"

	"diapause.dev/test/bed"
)

// limit ends what a test waits for.
const limit = 3 * time.Minute

// eventually calls f until it returns nil, or the context ends.
func eventually(ctx context.Context, t *testing.T, f func() error) {
	t.Helper()
	if err := bed.Until(ctx, f); err != nil {
		t.Fatal(err)
	}
}
