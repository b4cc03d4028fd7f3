package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/sleep"
)

// If a node reboots while a pod sleeps, the kubelet makes the pod's sandbox anew, and it is restored from the snapshot
// by which it would have been woken. A reminder says from which. A snapshot must not come back
// once the pod has run on, so a reminder is
//
//   - written after the pod has fallen asleep, and not if its wake has begun. If the node goes down before, the pod
//     starts anew;
//   - removed, durably, before a sandbox of the pod gets the first byte of an image, to wake or to be restored, and
// before the pod starts anew. If the node goes down after that, the pod starts anew. A sandbox whose kernel is loaded
//     before the wake cannot run: it is removed when the wake begins, see beforehand.go;
//   - used only after a reboot, or after a wake that has failed. While the node runs, a pod that sleeps has its mark;
//     if its sandbox is made anew otherwise, the pod was ended;
//   - written again if a wake has failed before the sandbox ran (gVisor may have crashed). The sandbox had bytes then,
//     but has done nothing with them. The pod is restored from it once more, and if that fails, too, it starts anew.
//     The shim writes it, since no agent may be running. The agent removes it if the snapshot is damaged;
//   - used only while the sandbox that slept is the newest of the pod that containerd knows. A shim waits for the
//     agent if there is a reminder, but an earlier shim may have let the pod start. If a sandbox that was to be
//     restored is given up before it has got a byte (containerd may have ended), the reminder names it instead.

// Remember writes the reminder of a pod that has fallen asleep, which the request wakes. If the pod is not asleep any
// more, it writes none.
func (rs *Restores) Remember(request string) error {
	r := rs.ofRequest(request)
	if r == nil || r.Pod.UID == "" {
		return nil
	}
	r.waking.Lock()
	defer r.waking.Unlock()
	if r.fed.Load() || !rs.asleep(request) || rs.failed(r.Pod.UID, r.SandboxID) {
		return nil
	}
	return rs.remind(&r.record, false)
}

// remind writes the reminder of a pod. Unwoken says that the request of this record has failed to wake it.
func (rs *Restores) remind(r *record, unwoken bool) error {
	boot, err := sleep.Boot()
	if err != nil {
		return err
	}
	return sleep.Reminder{
		Format: sleep.ReminderFormat, Pod: r.Pod, Sandbox: r.SandboxID, Snapshot: r.Key, UID: r.UID, Boot: boot,
		Unwoken: unwoken,
	}.Write(rs.reminder(r.Pod.UID))
}

// failed reports whether a reminder says that the wake of a sandbox has failed.
func (rs *Restores) failed(podUID, sandbox string) bool {
	m, err := sleep.ReadReminder(rs.reminder(podUID))
	return err == nil && m.Unwoken && m.Sandbox == sandbox
}

// maxUnwoken bounds how many wakes are kept of which no shim has said yet how they went.
const maxUnwoken = 64

// endedWake is a wake whose restore has ended.
type endedWake struct {
	record
	why error // why it has ended, as far as is known
}

// keepUnwoken keeps a wake whose restore has ended, until the shim says how it went: a sandbox that has all its memory
// may still not run.
func (rs *Restores) keepUnwoken(r *restore, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.mu.Lock()
	keep := r.admitted && !r.woken && r.Pod.UID != ""
	w := endedWake{record: r.record, why: errors.Join(r.err, err)}
	r.mu.Unlock()
	if !keep {
		return
	}
	for request := range rs.unwoken {
		if len(rs.unwoken) >= maxUnwoken {
			delete(rs.unwoken, request)
		}
	}
	rs.unwoken[w.Request] = w
}

// Woken notes that a request has woken its pod, which may still load its memory, or has ended since.
func (rs *Restores) Woken(request string) {
	rs.mu.Lock()
	delete(rs.unwoken, request)
	r := rs.all[request]
	died := r != nil && r.woke()
	rs.mu.Unlock()
	if died {
		rs.finish(r, r.gone())
	}
}

// woke notes that the pod was woken. It reports whether the sandbox has gone and had no memory: see source.endedAhead.
func (r *restore) woke() (died bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = true
	return r.died && r.serving == 0
}

// Unwoken notes that the sandbox that a request was to wake has ended before it ran, and the pod with it: the pod's
// next sandbox is restored from the same snapshot, unless that is why it failed.
func (rs *Restores) Unwoken(request, sandbox string, pod snapshot.PodRef) error {
	w, err := rs.failedWake(request, sandbox, pod)
	if err != nil { // what the shim has written stays
		return nil
	}
	if final(w.why) {
		return rs.Forget(pod)
	}
	rs.log.Info("a pod that was not woken is restored when recreated", "pod", pod.String(), "snapshot", w.Key.String())
	return rs.remind(&w.record, true)
}

func (rs *Restores) reminder(podUID string) string { return sleep.ReminderPath(rs.Reminders, podUID) }

// Forget durably removes the reminder of a pod that is about to run. If there is none, it does nothing.
func (rs *Restores) Forget(pod snapshot.PodRef) error {
	path := rs.reminder(pod.UID)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := durable.Remove(path); err != nil {
		return fmt.Errorf("pod %s would run on while it is remembered as asleep: %w", pod, err)
	}
	return nil
}

// feed must succeed before a sandbox gets the first byte of its image or, if its kernel is loaded before the wake, of
// the memory: from then on the pod may run.
func (rs *Restores) feed(r *restore) error {
	if r.fed.Load() {
		return nil
	}
	r.waking.Lock()
	defer r.waking.Unlock()
	if rs.failed(r.Pod.UID, r.SandboxID) { // its sidecar has found the next agent before it has ended
		return fmt.Errorf("sandbox %s of pod %s: %w", r.SandboxID, r.Pod, errkind.ErrSandboxExited)
	}
	if err := rs.Forget(r.Pod); err != nil {
		return err
	}
	r.fed.Store(true)
	return nil
}

// keepReminder has the reminder of a pod name a sandbox that was to be restored from it, and was given up before it got
// a byte: the pod's next sandbox is restored from it.
func (rs *Restores) keepReminder(r *record) {
	m, err := sleep.ReadReminder(rs.reminder(r.Pod.UID))
	if err != nil || m.Pod != r.Pod || m.Snapshot != r.Key || m.UID != r.UID || m.Sandbox == r.SandboxID {
		return
	}
	if due, err := m.Due(); err != nil || !due {
		return
	}
	m.Sandbox = r.SandboxID
	if err := m.Write(rs.reminder(r.Pod.UID)); err != nil {
		rs.log.Error("a pod that slept starts cold", "pod", r.Pod.String(), "error", err)
	}
}

// keepRecorded does so for a sandbox that an earlier agent was to restore. If it has got a byte, there is no reminder.
func (rs *Restores) keepRecorded(sandbox string, known []*restore) {
	all, err := rs.Requests.All()
	if err != nil {
		rs.log.Warn("request directories unreadable", "error", err)
	}
	for _, request := range all {
		if slices.ContainsFunc(known, func(r *restore) bool { return r.Request == request }) {
			continue
		}
		if rec, err := rs.readRecord(request); err == nil && rec.SandboxID == sandbox {
			rs.keepReminder(&rec)
		}
	}
}

// Remembered returns what a pod is restored from whose sandbox is being made, if it slept when the node went down.
// After an error it is not known whether it did.
func (rs *Restores) Remembered(ctx context.Context, pod snapshot.PodRef, sandbox string,
) (c Choice, ok bool, err error) {
	m, err := sleep.ReadReminder(rs.reminder(pod.UID))
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		rs.log.Error("not known from which snapshot a pod is to be restored", "pod", pod.String(), "error", err)
		return c, false, nil
	}
	due, err := m.Due()
	if err != nil || !due || m.Pod != pod {
		return c, false, err
	}
	last, err := rs.Runtime.Newest(ctx, pod.UID, sandbox)
	if err != nil {
		return c, false, fmt.Errorf("pod %s slept when the node went down, and may have run since: %w", pod, err)
	}
	return Choice{Snapshot: m.Snapshot, UID: m.UID, own: true}, last == m.Sandbox, nil
}

// reminders returns the reminders by their paths.
func (rs *Restores) reminders() map[string]sleep.Reminder {
	all := make(map[string]sleep.Reminder)
	paths, _ := filepath.Glob(filepath.Join(rs.Reminders, "*.json")) // fails only if the pattern is malformed
	for _, path := range paths {
		m, err := sleep.ReadReminder(path)
		switch {
		case err == nil:
			all[path] = m
		case !errors.Is(err, fs.ErrNotExist):
			rs.log.Error("a pod that slept is not remembered", "error", err)
		}
	}
	return all
}

// remembers returns a pod that slept when the node went down, and is to be restored from the snapshot with this UID or,
// if uid is empty, any with the key.
func (rs *Restores) remembers(k snapshot.Key, uid string) (pod string) {
	for _, m := range rs.reminders() {
		if due, err := m.Due(); err == nil && due && m.Snapshot == k && (uid == "" || uid == m.UID) {
			return m.Pod.String()
		}
	}
	return ""
}

// EndedAsleep returns the pod that slept on the snapshot with this UID, and has had no sandbox since: it has ended in
// its sleep, or slept when the node went down. Ok is false if there is none.
func (rs *Restores) EndedAsleep(ctx context.Context, k snapshot.Key, uid string,
) (pod snapshot.PodRef, ok bool, err error) {
	for _, m := range rs.reminders() { // before it is known who sleeps: a wake removes its reminder first
		if m.Snapshot != k || m.UID != uid {
			continue
		}
		if slices.ContainsFunc(rs.Asleep(), func(s sleep.Mark) bool { return s.UID == m.Pod.UID }) {
			return pod, false, nil
		}
		last, err := rs.Runtime.Newest(ctx, m.Pod.UID, "")
		if err != nil {
			return pod, false, fmt.Errorf("pod %s has slept on snapshot %s, and may have run since: %w", m.Pod, k, err)
		}
		if _, err := os.Lstat(rs.reminder(m.Pod.UID)); err != nil { // it was removed meanwhile
			return pod, false, nil
		}
		return m.Pod, last == "" || last == m.Sandbox, nil
	}
	return pod, false, nil
}

// CleanReminders removes the reminders that no longer count.
func (rs *Restores) CleanReminders(ctx context.Context) {
	all := rs.reminders() // before it is known who sleeps: what is written later stays
	rs.forgetUndecided(all)
	asleep := make(map[string]bool)
	for _, m := range rs.Asleep() {
		asleep[m.UID] = true
	}
	for path, m := range all {
		if asleep[m.Pod.UID] || !rs.outdated(ctx, m) {
			continue
		}
		if now, err := sleep.ReadReminder(path); err != nil || now != m { // a wake may have failed meanwhile
			continue
		}
		if err := durable.Remove(path); err != nil {
			rs.log.Warn("a reminder is not removed", "pod", m.Pod.String(), "error", err)
		}
	}
}

// outdated reports whether the reminder of a pod that does not sleep no longer counts: the pod has ended in its sleep,
// has run since, or is gone.
func (rs *Restores) outdated(ctx context.Context, m sleep.Reminder) bool {
	due, err := m.Due()
	if err != nil || !due && rs.cluster == nil {
		return err == nil
	}
	last, err := rs.Runtime.Newest(ctx, m.Pod.UID, "")
	switch {
	case err != nil:
		return false
	case rs.cluster != nil && (last == "" || last == m.Sandbox && !due):
		return rs.undecided(m.Pod.UID) > endedTime
	}
	return last != m.Sandbox && !rs.preparing(last)
}

// endedTime bounds how long the reminder of a pod that ended in its sleep waits until the cluster has decided whether
// the pod's successors inherit its snapshot.
const endedTime = time.Hour

// undecided returns since when this agent has known that a pod ended in its sleep.
func (rs *Restores) undecided(podUID string) time.Duration {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, ok := rs.endedAsleep[podUID]; !ok {
		rs.endedAsleep[podUID] = time.Now()
	}
	return time.Since(rs.endedAsleep[podUID])
}

// forgetUndecided forgets the pods that ended in their sleep and have no reminder any more.
func (rs *Restores) forgetUndecided(reminders map[string]sleep.Reminder) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	maps.DeleteFunc(rs.endedAsleep, func(podUID string, _ time.Time) bool {
		_, ok := reminders[rs.reminder(podUID)]
		return !ok
	})
}

// preparing reports whether a sandbox is to be restored and has got nothing yet.
func (rs *Restores) preparing(sandbox string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		if r.SandboxID == sandbox && !r.fed.Load() {
			return true
		}
	}
	return false
}
