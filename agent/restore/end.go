package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// Explain adds to what the shim says of a failed restore what this agent knows of it: why memory could not be read.
func (rs *Restores) Explain(request string, failure error) error {
	if err := rs.registry.ofRequest(request).cause(); err != nil {
		return fmt.Errorf("%w: %w", err, failure)
	}
	return failure
}

// Reported notes that the shim has reported a failed restore of a sandbox, and ends the sandbox. If the restore's
// sidecar is still connected, the restore ends only with that connection.
func (rs *Restores) Reported(request, sandbox string, failure error) {
	r := rs.registry.ofRequest(request)
	if r == nil {
		rs.reportedLate(request, sandbox)
		return
	}
	r.note(toldByShim{failure})
	r.mu.Lock()
	r.on(shimFailed)
	unserved := r.state == failing && r.serving == 0
	r.mu.Unlock()
	if unserved {
		rs.finish(r, failure)
	}
}

// reportedLate deals with a failed restore that this agent does not serve: the sandbox had everything before its last
// container was started, or an earlier agent has prepared the restore.
func (rs *Restores) reportedLate(request, sandbox string) {
	rec, err := rs.registry.read(request)
	if err != nil { // removed once the sandbox had everything: not of root file systems alone, which stay
		rec.Scope = snapshot.WholePod
	}
	rs.tryAgain(sandbox, rec.Scope)
}

// errGivenUp is the kind of error of a restore whose sandbox starts anew, or does not start.
var errGivenUp = errors.New("was canceled")

// GiveUp ends the restores that were prepared for a sandbox that will not be restored.
func (rs *Restores) GiveUp(sandbox string, reason error) {
	given := rs.registry.ofSandbox(sandbox)
	// An earlier agent may have been going to restore it, too. If it has got a byte, there is no reminder.
	for request, rec := range rs.registry.recordsOf(sandbox) {
		if !slices.ContainsFunc(given, func(r *restore) bool { return r.Request == request }) {
			rs.Reminders.Keep(rec.sleeper())
		}
	}
	for _, r := range given {
		if r.waking.Lock(); !r.fed.Load() {
			rs.Reminders.Keep(r.sleeper())
		}
		r.waking.Unlock()
		rs.Reported(r.Request, sandbox, fmt.Errorf("restore of %s %w: %w", r.Key, errGivenUp, reason))
	}
}

// Preparing reports whether a sandbox is to be restored and has got nothing yet.
func (rs *Restores) Preparing(sandbox string) bool {
	return slices.ContainsFunc(rs.registry.ofSandbox(sandbox), func(r *restore) bool { return !r.fed.Load() })
}

// Wanted reports whether the directory of a request must stay. It must stay as long as the request's sandbox exists,
// because its sidecar may come back. known is false if the request is not a restore.
func (rs *Restores) Wanted(ctx context.Context, request string) (wanted, known bool) {
	r, newer := rs.registry.lookUp(request)
	if r == nil {
		return newer, newer // the agent that wrote it may come back
	}
	if rs.registry.orphan(r) {
		return false, true
	}
	_, err := rs.Runtime.Get(ctx, r.SandboxID)
	return !errors.Is(err, cri.ErrNotFound), true
}

// Abandon ends a restore whose sandbox has gone and whose sidecar has not reported that.
func (rs *Restores) Abandon(request string) {
	r := rs.registry.ofRequest(request)
	if r != nil {
		rs.finish(r, fmt.Errorf("restore of %s: %w", r.Key, errkind.ErrSandboxExited))
	}
}

// finish ends a restore: err is why it failed, or nil if the sandbox has everything.
func (rs *Restores) finish(r *restore, err error) {
	r.mu.Lock()
	first := r.on(over)
	r.mu.Unlock()
	if !first {
		return
	}
	rs.unwoken.keep(r, err) // before its request is forgotten: Woken may come at any time
	rs.registry.remove(r)
	if err == nil && r.seenThrough() {
		r.image.Record()
	}
	r.image.Release()
	if err := rs.Requests.Remove(r.Request); err != nil {
		rs.log.Warn("request directory not removed", "request", r.Request, "error", err)
	}
	rs.registry.forgetUnanswered(r.SandboxID)
	r.conclude(err, rs.Metrics, rs.log)
	// The shim may have ended a sandbox that had everything.
	if err := r.failure(); err != nil && !errors.Is(err, errGivenUp) && !r.Wakes { // a pod that slept has all containers
		rs.tryAgain(r.SandboxID, r.Scope)
	}
}
