package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sidecar"
)

// A sentry that saves a sandbox first waits for what that has not loaded yet, and it does so in the
// pause. A checkpoint therefore waits for the end of the load before it pauses anything.

// load waits until the sandbox has all its memory, if it is being restored. If ctx is done first,
// nothing has been done to the sandbox.
func (c *checkpoint) load(ctx context.Context) error {
	var done, total int64
	waited, err := c.restores.await(ctx, c.pod.ID, func(d, t int64) {
		done, total = max(done, d), max(total, t) // 0 is for what is not known
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

// await waits until a sandbox has loaded everything, and reports whether it was loading. A restore that
// fails meanwhile is an error, and so is the end of ctx.
func (rs *restores) await(ctx context.Context, sandbox string,
	progress func(done, total int64),
) (waited bool, err error) {
	for {
		request := rs.unloaded(sandbox)
		if request == "" {
			return waited, nil
		}
		waited = true
		if err := rs.awaitRequest(ctx, request, progress); err != nil {
			return waited, err
		}
	}
}

// unloaded returns the request by which a sandbox is still being loaded, or "". After a restart of the
// agent that is one whose sidecar has not come back yet.
func (rs *restores) unloaded(sandbox string) string {
	rs.mu.Lock()
	for _, r := range rs.all {
		if r.SandboxID == sandbox && !r.hasAll() {
			rs.mu.Unlock()
			return r.Request
		}
	}
	rs.mu.Unlock()
	entries, err := os.ReadDir(rs.cfg.RequestDir)
	if err != nil {
		rs.log.Warn("request directories unreadable", "error", err)
	}
	for _, e := range entries {
		r, err := rs.recall(e.Name())
		if err == nil && r.SandboxID == sandbox && !r.Loaded && rs.served(r.Request) {
			return r.Request
		}
	}
	return ""
}

// served reports whether the sidecar of a restore lives. It does as long as its sandbox lacks anything.
func (rs *restores) served(request string) bool {
	held, err := sidecar.Held(filepath.Join(rs.cfg.RequestDir, request))
	if err != nil {
		rs.log.Warn("not known whether a sidecar lives", "request", request, "error", err)
	}
	return held
}

// awaitRequest waits until a restore ends, or an instant if it cannot be looked at: its snapshot may be
// in a store that is away.
func (rs *restores) awaitRequest(ctx context.Context, request string, progress func(done, total int64)) error {
	progress(0, 0)
	r, err := rs.find(ctx, request)
	if err != nil {
		return pause(ctx)
	}
	for {
		progress(r.progress())
		select {
		case <-r.ended:
			if r.hasAll() { // files alone: a container may have failed to start before
				return nil
			}
			return r.failure()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(loadPoll):
			rs.endOrphan(r)
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

// endOrphan ends a restore whose sidecar ended while there was no agent: its sandbox lives, and so has
// everything.
func (rs *restores) endOrphan(r *restore) {
	if rs.orphan(r) {
		rs.finish(r, nil)
	}
}

// orphan reports whether the sidecar of a restore ended while there was no agent.
func (rs *restores) orphan(r *restore) bool {
	r.mu.Lock()
	maybe := r.revived && r.serving == 0 && !r.Loaded && r.Scope != snapshot.RootfsOnly
	r.mu.Unlock()
	return maybe && !rs.served(r.Request)
}
