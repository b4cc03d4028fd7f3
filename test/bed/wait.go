package bed

import (
	"context"
	"fmt"
	"time"
)

// poll is how often something that is about to come is looked for.
const poll = 20 * time.Millisecond

// Until calls f until it returns nil, or ctx ends: the error then says what f returned last.
func Until(ctx context.Context, f func() error) error { return UntilEvery(ctx, poll, f) }

// UntilEvery is Until with a pause of its own between two calls.
func UntilEvery(ctx context.Context, pause time.Duration, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}
