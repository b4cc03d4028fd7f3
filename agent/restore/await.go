package restore

import (
	"context"
	"time"
)

// Await waits until a sandbox has loaded everything, and reports whether it was loading. It returns an error if the
// restore fails meanwhile, or if ctx ends.
func (rs *Restores) Await(ctx context.Context, sandbox string,
	progress func(done, total int64),
) (waited bool, err error) {
	for {
		request := rs.registry.loads(sandbox)
		if request == "" {
			return waited, nil
		}
		waited = true
		if err := rs.awaitRequest(ctx, request, progress); err != nil {
			return waited, err
		}
	}
}

// awaitRequest waits until a restore ends. If the restore cannot be looked at, awaitRequest only pauses: the snapshot's
// store may be unreachable.
func (rs *Restores) awaitRequest(ctx context.Context, request string, progress func(done, total int64)) error {
	progress(0, 0)
	r, err := rs.registry.find(ctx, request)
	if err != nil {
		return pause(ctx)
	}
	r.image.Hasten()
	for {
		progress(r.image.Progress())
		select {
		case <-r.ended:
			if r.hasAll() { // root file systems only: failure may return why a container failed to start earlier
				return nil
			}
			return r.failure()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(loadPoll):
			// Its sidecar may have ended while no agent was running. Its sandbox is alive, so it has everything.
			if rs.registry.orphan(r) {
				rs.finish(r, nil)
			}
		}
	}
}

// pause waits a little, or until ctx is done.
func pause(ctx context.Context) error {
	select {
	case <-time.After(loadPoll):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
