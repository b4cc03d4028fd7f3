package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/loading"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/sidecar"
)

// A pod that sleeps has a restore that is prepared before it falls asleep: the shim can wake it without asking. The
// mark in the request's directory says that the pod sleeps. As long as it does, the restore holds its snapshot, so
// that nobody removes it.

// Wakes are the restores by which this node's pods that sleep are woken. Its methods may be called concurrently.
type Wakes struct {
	restores  *Restores
	registry  *registry
	unwoken   *endedWakes
	marks     *asleep.Marks
	reminders *asleep.Reminders
	log       *slog.Logger
}

// NewWakes returns the wakes of a node, which are among its restores.
func NewWakes(rs *Restores) *Wakes {
	return &Wakes{
		restores: rs, registry: rs.registry, unwoken: &rs.unwoken, marks: rs.Marks, reminders: rs.Reminders, log: rs.log,
	}
}

// errHopeless is the kind of error of a wake that cannot succeed, however often it is tried.
var errHopeless = errors.New("the pod can no longer be woken")

// Hopeless reports whether a pod can never be woken: its snapshot is damaged or gone, or of another gVisor.
func Hopeless(err error) bool {
	return errors.Is(err, errHopeless) || errors.Is(err, errkind.ErrReplaced) || loading.Final(err) ||
		errors.As(err, new(*runsc.IncompatibleError))
}

// PrepareWake makes everything ready for a sandbox that is about to end to be restored under its own id.
func (ws *Wakes) PrepareWake(ctx context.Context, id snapshots.ID, pod snapshot.PodRef, sandbox string,
) (request, dir string, err error) {
	c := Choice{Snapshot: id.Key, UID: id.UID, Fail: true, wakes: true}
	r, dir, err := ws.restores.prepare(ctx, c, pod, sandbox, 0)
	if err != nil {
		return "", "", fmt.Errorf("prepare the wake of pod %s: %w", pod, err)
	}
	return r.Request, dir, nil
}

// DropWake ends a restore that was prepared for a pod that did not fall asleep.
func (ws *Wakes) DropWake(request string, reason error) {
	if r := ws.registry.ofRequest(request); r != nil {
		ws.restores.finish(r, fmt.Errorf("restore of %s %w: %w", r.Key, errGivenUp, reason))
	}
}

// Unreadable returns the pod that a request is to wake, and why its snapshot cannot be read now. Err is nil if it can
// be, or never will be: then the wake itself says why it fails.
func (ws *Wakes) Unreadable(ctx context.Context, request string) (pod snapshot.PodRef, err error) {
	if ws.registry.ofRequest(request) != nil {
		return pod, nil
	}
	rec, unknown := ws.registry.read(request)
	if _, err = ws.registry.revive(ctx, request); unknown != nil || Hopeless(err) {
		err = nil
	}
	return rec.Pod, err
}

// wakeOf returns the request by which the pod of a sandbox is woken. ok is false if it does not sleep.
func (ws *Wakes) wakeOf(sandbox string) (rec record, ok bool) {
	for request, m := range ws.marks.Requests() {
		if m.Sandbox == sandbox {
			rec, err := ws.registry.read(request)
			return rec, err == nil
		}
	}
	return rec, false
}

// PodAsleep returns the pod of a sandbox. ok is false if it does not sleep.
func (ws *Wakes) PodAsleep(sandbox string) (pod snapshot.PodRef, ok bool) {
	rec, ok := ws.wakeOf(sandbox)
	return rec.Pod, ok
}

// SleepsOn returns the snapshot by which the pod of a sandbox would be woken. ok is false if it does not sleep. It is
// false, too, once a wake is under way that may have got a byte of the snapshot: the pod may run then.
func (ws *Wakes) SleepsOn(sandbox string) (id snapshots.ID, ok bool) {
	rec, ok := ws.wakeOf(sandbox)
	return snapshots.ID{Key: rec.Key, UID: rec.UID}, ok && !rec.Loaded && !ws.wakes(rec.Request) && !ws.begun(rec.Request)
}

// wakes reports whether this agent has given a sandbox a byte of what a request is to restore.
func (ws *Wakes) wakes(request string) bool {
	r := ws.registry.ofRequest(request)
	return r != nil && r.fed.Load()
}

// HoldAsleep holds the snapshots of the pods that an earlier agent has put to sleep. If one cannot be read now, the
// pod's wake tries again. It remembers the pods, if the earlier agent did not get round to that.
func (ws *Wakes) HoldAsleep(ctx context.Context) {
	ws.reminders.CleanTemporary()
	for request := range ws.marks.Requests() {
		if _, err := ws.registry.find(ctx, request); err != nil {
			ws.log.Error("the snapshot of a pod that sleeps cannot be read", "request", request, "error", err)
			continue
		}
		if ws.begun(request) {
			continue
		}
		if err := ws.Remember(request); err != nil {
			ws.log.Error("if the node reboots, a pod that sleeps starts cold", "request", request, "error", err)
		}
	}
}

// begun reports whether a wake that an earlier agent served may have got memory: it has a sidecar. If that cannot be
// found out, it may.
func (ws *Wakes) begun(request string) bool {
	held, err := sidecar.Held(ws.registry.dir.Path(request))
	return (held || err != nil) && !ws.marks.Held(request)
}
