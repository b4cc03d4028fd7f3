package restore

import (
	"context"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sidecar"
)

// Await waits until a sandbox has loaded everything, and reports whether it was loading. It returns an error if the
// restore fails meanwhile, or if ctx ends.
func (rs *Restores) Await(ctx context.Context, sandbox string,
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

// unloaded returns the request that is still loading a sandbox, or "". After a restart of the agent, rs.all lacks
// requests whose sidecar has not come back yet. unloaded finds them in the request directories.
func (rs *Restores) unloaded(sandbox string) string {
	rs.mu.Lock()
	for _, r := range rs.all {
		if r.SandboxID == sandbox && !r.hasAll() && !rs.asleep(r.Request) {
			rs.mu.Unlock()
			return r.Request
		}
	}
	rs.mu.Unlock()
	all, err := rs.Requests.All()
	if err != nil {
		rs.log.Warn("request directories unreadable", "error", err)
	}
	for _, request := range all {
		r, err := rs.recall(request)
		if err == nil && r.SandboxID == sandbox && !r.Loaded && rs.served(r.Request) && !rs.held(r.Request) {
			return r.Request
		}
	}
	return ""
}

// served reports whether the sidecar of a restore is running. A sidecar runs at least until its sandbox has everything.
func (rs *Restores) served(request string) bool {
	held, err := sidecar.Held(rs.Requests.Path(request))
	if err != nil {
		rs.log.Warn("not known whether a sidecar lives", "request", request, "error", err)
	}
	return held
}

// awaitRequest waits until a restore ends. If the restore cannot be looked at, awaitRequest only pauses: the snapshot's
// store may be unreachable.
func (rs *Restores) awaitRequest(ctx context.Context, request string, progress func(done, total int64)) error {
	progress(0, 0)
	r, err := rs.find(ctx, request)
	if err != nil {
		return pause(ctx)
	}
	r.urgent.Store(true)
	for {
		progress(r.progress())
		select {
		case <-r.ended:
			if r.hasAll() { // root file systems only: failure may return why a container failed to start earlier
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

// endOrphan ends a restore whose sidecar ended while no agent was running. Its sandbox is alive, so it has everything.
func (rs *Restores) endOrphan(r *restore) {
	if rs.orphan(r) {
		rs.finish(r, nil)
	}
}

// orphan reports whether the sidecar of a restore ended while no agent was running.
func (rs *Restores) orphan(r *restore) bool {
	r.mu.Lock()
	maybe := r.revived && r.serving == 0 && !r.Loaded && r.Scope != snapshot.RootfsOnly
	r.mu.Unlock()
	return maybe && !rs.served(r.Request) && !rs.asleep(r.Request)
}
