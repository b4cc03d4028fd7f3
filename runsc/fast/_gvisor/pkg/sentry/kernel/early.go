package kernel

import (
	"context"
	"time"
)

// awaited returns for how long a load has waited for what its context did not have yet.
func awaited(ctx context.Context) time.Duration {
	if c, ok := ctx.(interface{ Awaited() time.Duration }); ok {
		return c.Awaited()
	}
	return 0
}
