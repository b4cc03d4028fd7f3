package checkpoint

import (
	"context"
	"fmt"
)

// Before a sentry saves a sandbox, it waits for all memory that is still loading. The sandbox is paused meanwhile. So a
// checkpoint waits for the end of the load before it pauses the sandbox.

// load waits until a sandbox that is being restored has all its memory. If ctx is done first, nothing has been done to
// the sandbox.
func (c *checkpoint) load(ctx context.Context) error {
	var done, total int64
	waited, err := c.cs.Load(ctx, c.pod.ID, func(d, t int64) {
		done, total = max(done, d), max(total, t) // 0 means unknown
		c.o.Progress("load", d, t)
	})
	if waited {
		c.watch.lap("load")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("pod %s is still loading its memory, %d of %d MiB so far; it runs on and was not saved: try "+
			"again later: %w",
			c.pod, done>>20, total>>20, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("pod %s did not load its memory: %w", c.pod, err)
	}
	return nil
}
