package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/loading"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// RetryWake prepares another restore for a sandbox, after that of a request has failed before the sandbox ran: the pod
// sleeps on. Why is failure, and what the agent knows of it. If no restore can succeed, the error is Hopeless.
func (ws *Wakes) RetryWake(ctx context.Context, request, sandbox string, pod snapshot.PodRef, since time.Time,
	failure error,
) (dir string, why, err error) {
	if dir := ws.retried(request, sandbox); dir != "" {
		return dir, failure, nil
	}
	failed, err := ws.failedWake(request, sandbox, pod)
	if failed.why != nil {
		failure = fmt.Errorf("%w: %w", failure, failed.why)
	}
	if err == nil && loading.Final(failed.why) {
		err = errors.Join(fmt.Errorf("%w: %w", errHopeless, failure), ws.reminders.Forget(pod))
	}
	ws.restores.Reported(request, sandbox, failure)
	if err != nil {
		return "", nil, fmt.Errorf("pod %s is not woken again: %w", pod, err)
	}
	c := Choice{Snapshot: failed.Key, UID: failed.UID, Store: failed.Store, Fail: true, wakes: true}
	r, dir, err := ws.restores.prepare(ctx, c, pod, sandbox, 0)
	if err != nil {
		return "", nil, fmt.Errorf("prepare another wake of pod %s: %w", pod, err)
	}
	err = sleep.Mark{Sandbox: sandbox, UID: pod.UID, Since: since}.Write(dir)
	if err == nil && pod.UID != "" { // not before: until there is the mark, the reminder says that the wake has failed
		err = ws.reminders.Write(r.sleeper(), false)
	}
	if err != nil {
		ws.DropWake(r.Request, err)
		return "", nil, err
	}
	return dir, failure, sleep.Unmark(ws.registry.dir.Path(request))
}

// retried returns the image path of a wake of a sandbox that was prepared after that of a request had failed. Empty:
// there is none, or it has begun.
func (ws *Wakes) retried(failed, sandbox string) (dir string) {
	for request, m := range ws.marks.Requests() {
		if m.Sandbox == sandbox && request != failed && !ws.wakes(request) {
			return ws.registry.dir.Path(request)
		}
	}
	return ""
}

// errNotFailed is the kind of error of a wake that has not failed.
var errNotFailed = fmt.Errorf("%w: the pod is awake, or its snapshot is not known", errHopeless)

// failedWake returns what a request was to restore to wake a pod.
func (ws *Wakes) failedWake(request, sandbox string, pod snapshot.PodRef) (w endedWake, err error) {
	r := ws.registry.ofRequest(request) // before it is known whether it has ended: see Restores.finish
	w, ended := ws.unwoken.take(request)
	if r == nil && !ended { // an earlier agent served it
		r, _ = ws.registry.recall(request)
	}
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		w, ended = endedWake{record: r.record, why: r.err}, !r.woken
	}
	if r == nil && !ended {
		var p asleep.Sleeper
		p, ended = ws.reminders.Unwoken(pod)
		w.record = record{Key: p.Snapshot.Key, UID: p.Snapshot.UID, SandboxID: p.Sandbox, Pod: p.Pod}
	}
	if !ended || w.SandboxID != sandbox {
		return endedWake{}, errNotFailed
	}
	return w, nil
}

// Woken notes that a request has woken its pod, which may still load its memory, or has ended since.
func (ws *Wakes) Woken(request string) {
	r := ws.registry.ofRequest(request)
	died := r != nil && r.woke()
	ws.unwoken.forget(request)
	if died {
		ws.restores.finish(r, r.gone())
	}
}

// Unwoken notes that the sandbox that a request was to wake has ended before it ran, and the pod with it: the pod's
// next sandbox is restored from the same snapshot, unless that is why it failed.
func (ws *Wakes) Unwoken(request, sandbox string, pod snapshot.PodRef) error {
	w, err := ws.failedWake(request, sandbox, pod)
	if err != nil { // what the shim has written stays
		return nil
	}
	if loading.Final(w.why) {
		return ws.reminders.Forget(pod)
	}
	ws.log.Info("a pod that was not woken is restored when recreated", "pod", pod.String(), "snapshot", w.Key.String())
	return ws.reminders.Write(w.sleeper(), true)
}
