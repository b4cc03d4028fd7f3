package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/runsc/sleep"
)

// A pod that sleeps has a restore that is prepared before it falls asleep: the shim can wake it without asking. The
// mark in the request's directory says that the pod sleeps. As long as it does, the restore holds its snapshot, so
// that nobody removes it.

// PrepareWake makes everything ready for a sandbox that is about to end to be restored under its own id.
func (rs *Restores) PrepareWake(ctx context.Context, id snapshots.ID, pod snapshot.PodRef, sandbox string,
) (request, dir string, err error) {
	c := Choice{Snapshot: id.Key, UID: id.UID, Fail: true, wakes: true}
	r, dir, err := rs.prepare(ctx, c, pod, sandbox, 0)
	if err != nil {
		return "", "", fmt.Errorf("prepare the wake of pod %s: %w", pod, err)
	}
	return r.Request, dir, nil
}

// DropWake ends a restore that was prepared for a pod that did not fall asleep.
func (rs *Restores) DropWake(request string, reason error) {
	rs.mu.Lock()
	r := rs.all[request]
	rs.mu.Unlock()
	if r != nil {
		rs.finish(r, fmt.Errorf("restore of %s %w: %w", r.Key, errGivenUp, reason))
	}
}

// Asleep returns the marks of the pods that sleep.
func (rs *Restores) Asleep() (all []sleep.Mark) {
	requests, err := rs.Requests.All()
	if err != nil {
		rs.log.Warn("request directories unreadable", "error", err)
	}
	for _, request := range requests {
		if m, ok := sleep.Marked(rs.Requests.Path(request)); ok {
			all = append(all, m)
		}
	}
	return all
}

// SleepsOn returns the snapshot by which the pod of a sandbox would be woken. ok is false if it does not sleep. It is
// false, too, once a wake is under way that may have got a byte of the snapshot: the pod may run then.
func (rs *Restores) SleepsOn(sandbox string) (id snapshots.ID, ok bool) {
	requests, _ := rs.Requests.All() // Asleep logs the error
	for _, request := range requests {
		dir := rs.Requests.Path(request)
		if m, ok := sleep.Marked(dir); !ok || m.Sandbox != sandbox {
			continue
		}
		rec, err := rs.readRecord(request)
		if err != nil || rec.Loaded || rs.wakes(request) {
			return snapshots.ID{}, false
		}
		held, err := sidecar.Held(dir) // an earlier agent may have served it
		return snapshots.ID{Key: rec.Key, UID: rec.UID}, err == nil && !held
	}
	return snapshots.ID{}, false
}

// wakes reports whether this agent has given a sandbox a byte of what a request is to restore.
func (rs *Restores) wakes(request string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[request]
	return r != nil && r.fed.Load()
}

// Needed returns the pod that sleeps, or slept when the node went down, and is woken from the snapshot with this UID,
// or "". With an empty uid it looks for any snapshot with the key.
func (rs *Restores) Needed(k snapshot.Key, uid string) (pod string) {
	requests, _ := rs.Requests.All() // Asleep logs the error
	for _, request := range requests {
		if !rs.asleep(request) {
			continue
		}
		r, err := rs.readRecord(request)
		if err == nil && r.Key == k && (uid == "" || uid == r.UID) {
			return r.Pod.String()
		}
	}
	return rs.remembers(k, uid)
}

// asleep reports whether a request is the one by which a pod that sleeps is woken.
func (rs *Restores) asleep(request string) bool {
	_, ok := sleep.Marked(rs.Requests.Path(request))
	return ok
}

// HoldAsleep holds the snapshots of the pods that an earlier agent has put to sleep. If one cannot be read now, the
// pod's wake tries again. It remembers the pods, if the earlier agent did not get round to that.
func (rs *Restores) HoldAsleep(ctx context.Context) {
	if err := durable.Clean(rs.Reminders); err != nil && !errors.Is(err, fs.ErrNotExist) {
		rs.log.Warn("temporary files stay", "error", err)
	}
	requests, _ := rs.Requests.All() // Asleep logs the error
	for _, request := range requests {
		if !rs.asleep(request) {
			continue
		}
		if _, err := rs.find(ctx, request); err != nil {
			rs.log.Error("the snapshot of a pod that sleeps cannot be read", "request", request, "error", err)
			continue
		}
		if waking, err := sidecar.Held(rs.Requests.Path(request)); err != nil || waking {
			continue
		}
		if err := rs.Remember(request); err != nil {
			rs.log.Error("if the node reboots, a pod that sleeps starts cold", "request", request, "error", err)
		}
	}
}

// begun notes that a pod that sleeps begins to load. It may have slept since its restore was prepared, and its shim may
// be of a version that does not ask whether it may be woken.
func (r *restore) begun() {
	r.admitted = true
	if r.serving == 0 {
		r.start = time.Now()
	}
}
