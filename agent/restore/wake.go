package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
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

// errHopeless is the kind of error of a wake that cannot succeed, however often it is tried.
var errHopeless = errors.New("the pod can no longer be woken")

// Hopeless reports whether a pod can never be woken: its snapshot is damaged or gone, or of another gVisor.
func Hopeless(err error) bool {
	return errors.Is(err, errHopeless) || errors.Is(err, errkind.ErrReplaced) || final(err) ||
		errors.As(err, new(*runsc.IncompatibleError))
}

// RetryWake prepares another restore for a sandbox, after that of a request has failed before the sandbox ran: the pod
// sleeps on. Why is failure, and what the agent knows of it. If no restore can succeed, the error is Hopeless.
func (rs *Restores) RetryWake(ctx context.Context, request, sandbox string, pod snapshot.PodRef, since time.Time,
	failure error,
) (dir string, why, err error) {
	if dir := rs.retried(request, sandbox); dir != "" {
		return dir, failure, nil
	}
	failed, err := rs.failedWake(request, sandbox, pod)
	if failed.why != nil {
		failure = fmt.Errorf("%w: %w", failure, failed.why)
	}
	if err == nil && final(failed.why) {
		err = errors.Join(fmt.Errorf("%w: %w", errHopeless, failure), rs.Forget(pod))
	}
	rs.Reported(request, sandbox, failure)
	if err != nil {
		return "", nil, fmt.Errorf("pod %s is not woken again: %w", pod, err)
	}
	c := Choice{Snapshot: failed.Key, UID: failed.UID, Store: failed.Store, Fail: true, wakes: true}
	r, dir, err := rs.prepare(ctx, c, pod, sandbox, 0)
	if err != nil {
		return "", nil, fmt.Errorf("prepare another wake of pod %s: %w", pod, err)
	}
	err = sleep.Mark{Sandbox: sandbox, UID: pod.UID, Since: since}.Write(dir)
	if err == nil && pod.UID != "" { // not before: until there is the mark, the reminder says that the wake has failed
		err = rs.remind(&r.record, false)
	}
	if err != nil {
		rs.DropWake(r.Request, err)
		return "", nil, err
	}
	return dir, failure, sleep.Unmark(rs.Requests.Path(request))
}

// retried returns the image path of a wake of a sandbox that was prepared after that of a request had failed. Empty:
// there is none, or it has begun.
func (rs *Restores) retried(failed, sandbox string) (dir string) {
	for request, m := range rs.sleepers() {
		if m.Sandbox == sandbox && request != failed && !rs.wakes(request) {
			return rs.Requests.Path(request)
		}
	}
	return ""
}

// errNotFailed is the kind of error of a wake that has not failed.
var errNotFailed = fmt.Errorf("%w: the pod is awake, or its snapshot is not known", errHopeless)

// failedWake returns what a request was to restore to wake a pod.
func (rs *Restores) failedWake(request, sandbox string, pod snapshot.PodRef) (w endedWake, err error) {
	rs.mu.Lock()
	r := rs.all[request]
	w, ended := rs.unwoken[request]
	delete(rs.unwoken, request)
	rs.mu.Unlock()
	if r == nil && !ended { // an earlier agent served it
		r, _ = rs.recall(request)
	}
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		w, ended = endedWake{record: r.record, why: r.err}, !r.woken
	}
	if r == nil && !ended {
		m, _ := sleep.ReadReminder(rs.reminder(pod.UID)) // the shim has written it; Remembered logs the error
		w.record = record{Key: m.Snapshot, UID: m.UID, SandboxID: m.Sandbox, Pod: m.Pod}
		ended = m.Unwoken && m.Pod == pod
	}
	if !ended || w.SandboxID != sandbox {
		return endedWake{}, errNotFailed
	}
	return w, nil
}

// DropWake ends a restore that was prepared for a pod that did not fall asleep.
func (rs *Restores) DropWake(request string, reason error) {
	if r := rs.ofRequest(request); r != nil {
		rs.finish(r, fmt.Errorf("restore of %s %w: %w", r.Key, errGivenUp, reason))
	}
}

// Unreadable returns the pod that a request is to wake, and why its snapshot cannot be read now. Err is nil if it can
// be, or never will be: then the wake itself says why it fails.
func (rs *Restores) Unreadable(ctx context.Context, request string) (pod snapshot.PodRef, err error) {
	if rs.ofRequest(request) != nil {
		return pod, nil
	}
	rec, unknown := rs.readRecord(request)
	if _, err = rs.revive(ctx, request); unknown != nil || Hopeless(err) {
		err = nil
	}
	return rec.Pod, err
}

// sleepers returns the pods that sleep, by the requests that wake them.
func (rs *Restores) sleepers() iter.Seq2[string, sleep.Mark] {
	return func(yield func(string, sleep.Mark) bool) {
		requests, err := rs.Requests.All()
		if err != nil {
			rs.log.Warn("request directories unreadable", "error", err)
		}
		for _, request := range requests {
			if m, ok := sleep.Marked(rs.Requests.Path(request)); ok && !yield(request, m) {
				return
			}
		}
	}
}

// Asleep returns the marks of the pods that sleep.
func (rs *Restores) Asleep() (all []sleep.Mark) {
	for _, m := range rs.sleepers() {
		all = append(all, m)
	}
	return all
}

// wakeOf returns the request by which the pod of a sandbox is woken. ok is false if it does not sleep.
func (rs *Restores) wakeOf(sandbox string) (rec record, ok bool) {
	for request, m := range rs.sleepers() {
		if m.Sandbox == sandbox {
			rec, err := rs.readRecord(request)
			return rec, err == nil
		}
	}
	return rec, false
}

// PodAsleep returns the pod of a sandbox. ok is false if it does not sleep.
func (rs *Restores) PodAsleep(sandbox string) (pod snapshot.PodRef, ok bool) {
	rec, ok := rs.wakeOf(sandbox)
	return rec.Pod, ok
}

// SleepsOn returns the snapshot by which the pod of a sandbox would be woken. ok is false if it does not sleep. It is
// false, too, once a wake is under way that may have got a byte of the snapshot: the pod may run then.
func (rs *Restores) SleepsOn(sandbox string) (id snapshots.ID, ok bool) {
	rec, ok := rs.wakeOf(sandbox)
	return snapshots.ID{Key: rec.Key, UID: rec.UID}, ok && !rec.Loaded && !rs.wakes(rec.Request) && !rs.begun(rec.Request)
}

// begun reports whether a wake that an earlier agent served may have got memory: it has a sidecar. If that cannot be
// found out, it may.
func (rs *Restores) begun(request string) bool {
	held, err := sidecar.Held(rs.Requests.Path(request))
	return (held || err != nil) && !rs.held(request)
}

// wakes reports whether this agent has given a sandbox a byte of what a request is to restore.
func (rs *Restores) wakes(request string) bool {
	r := rs.ofRequest(request)
	return r != nil && r.fed.Load()
}

// Needed returns the pod that sleeps, or slept when the node went down, and is woken from the snapshot with this UID,
// or "". With an empty uid it looks for any snapshot with the key.
func (rs *Restores) Needed(k snapshot.Key, uid string) (pod string) {
	for request := range rs.sleepers() {
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
	for request := range rs.sleepers() {
		if _, err := rs.find(ctx, request); err != nil {
			rs.log.Error("the snapshot of a pod that sleeps cannot be read", "request", request, "error", err)
			continue
		}
		if rs.begun(request) {
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
