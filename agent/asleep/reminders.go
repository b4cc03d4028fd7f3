package asleep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/sleep"
)

// If a node reboots while a pod sleeps, the kubelet makes the pod's sandbox anew, and it is restored from the snapshot
// by which it would have been woken. A reminder says from which. A snapshot must not come back once the pod has run on,
// so a reminder is
//
//   - written after the pod has fallen asleep, and not if its wake has begun. If the node goes down before, the pod
//     starts anew;
//   - removed, durably, before a sandbox of the pod gets the first byte of an image, to wake or to be restored, and
//     before the pod starts anew. If the node goes down after that, the pod starts anew. A sandbox whose kernel is
//     loaded before the wake cannot run: it is removed when the wake begins, see package restore, beforehand.go;
//   - used only after a reboot, or after a wake that has failed. While the node runs, a pod that sleeps has its mark;
//     if its sandbox is made anew otherwise, the pod was ended;
//   - written again if a wake has failed before the sandbox ran (gVisor may have crashed). The sandbox had bytes then,
//     but has done nothing with them. The pod is restored from it once more, and if that fails, too, it starts anew.
//     The shim writes it, since no agent may be running. The agent removes it if the snapshot is damaged;
//   - used only while the sandbox that slept is the newest of the pod that containerd knows. A shim waits for the
//     agent if there is a reminder, but an earlier shim may have let the pod start. If a sandbox that was to be
//     restored is given up before it has got a byte (containerd may have ended), the reminder names it instead.

// Config is what reminders work on.
type Config struct {
	Dir     string // of the reminders
	Runtime Runtime
	Marks   *Marks
	// Clustered: the reminders of pods that ended in their sleep wait until a cluster has decided whether the pods'
	// successors inherit their snapshots.
	Clustered bool
	Logger    *slog.Logger
}

// Runtime is what reminders need of containerd. *cri.Client implements it.
type Runtime interface {
	Newest(ctx context.Context, podUID, except string) (id string, err error)
}

// Reminders are the reminders of this node. Its methods may be called concurrently. Package restore sees to it that the
// reminder of a pod is not written while a restore of the pod begins to load.
type Reminders struct {
	Config
	ended endedPods
}

// NewReminders returns the reminders in a directory.
func NewReminders(c Config) *Reminders { return &Reminders{Config: c} }

// Sleeper is a pod that sleeps, or has slept.
type Sleeper struct {
	Pod      snapshot.PodRef
	Sandbox  string // that it had
	Snapshot snapshots.ID
}

// Path returns the path of a pod's reminder.
func (rs *Reminders) Path(podUID string) string { return sleep.ReminderPath(rs.Dir, podUID) }

// Write writes the reminder of a pod. Unwoken says that a restore has failed to wake it.
func (rs *Reminders) Write(p Sleeper, unwoken bool) error {
	boot, err := sleep.Boot()
	if err != nil {
		return err
	}
	return sleep.Reminder{
		Format: sleep.ReminderFormat, Pod: p.Pod, Sandbox: p.Sandbox, Snapshot: p.Snapshot.Key, UID: p.Snapshot.UID,
		Boot: boot, Unwoken: unwoken,
	}.Write(rs.Path(p.Pod.UID))
}

// Failed reports whether a reminder says that the wake of a sandbox has failed.
func (rs *Reminders) Failed(podUID, sandbox string) bool {
	m, err := sleep.ReadReminder(rs.Path(podUID))
	return err == nil && m.Unwoken && m.Sandbox == sandbox
}

// Unwoken returns what the reminder of a pod says of the pod, if there is one. Ok reports whether it says that a wake
// of this very pod has failed.
func (rs *Reminders) Unwoken(pod snapshot.PodRef) (p Sleeper, ok bool) {
	m, _ := sleep.ReadReminder(rs.Path(pod.UID)) // the shim has written it; Remembered logs the error
	p = Sleeper{Pod: m.Pod, Sandbox: m.Sandbox, Snapshot: snapshots.ID{Key: m.Snapshot, UID: m.UID}}
	return p, m.Unwoken && m.Pod == pod
}

// Forget durably removes the reminder of a pod that is about to run. If there is none, it does nothing.
func (rs *Reminders) Forget(pod snapshot.PodRef) error {
	path := rs.Path(pod.UID)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := durable.Remove(path); err != nil {
		return fmt.Errorf("pod %s would run on while it is remembered as asleep: %w", pod, err)
	}
	return nil
}

// Keep has the reminder of a pod name a sandbox that was to be restored from it, and was given up before it got a byte:
// the pod's next sandbox is restored from it.
func (rs *Reminders) Keep(p Sleeper) {
	m, err := sleep.ReadReminder(rs.Path(p.Pod.UID))
	other := m.Pod != p.Pod || m.Snapshot != p.Snapshot.Key || m.UID != p.Snapshot.UID
	if err != nil || other || m.Sandbox == p.Sandbox {
		return
	}
	if due, err := m.Due(); err != nil || !due {
		return
	}
	m.Sandbox = p.Sandbox
	if err := m.Write(rs.Path(p.Pod.UID)); err != nil {
		rs.Logger.Error("a pod that slept starts cold", "pod", p.Pod.String(), "error", err)
	}
}

// Remembered returns what a pod is restored from whose sandbox is being made, if it slept when the node went down.
// After an error it is not known whether it did.
func (rs *Reminders) Remembered(ctx context.Context, pod snapshot.PodRef, sandbox string,
) (id snapshots.ID, ok bool, err error) {
	m, err := sleep.ReadReminder(rs.Path(pod.UID))
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	if err != nil {
		rs.Logger.Error("not known from which snapshot a pod is to be restored", "pod", pod.String(), "error", err)
		return id, false, nil
	}
	due, err := m.Due()
	if err != nil || !due || m.Pod != pod {
		return id, false, err
	}
	last, err := rs.Runtime.Newest(ctx, pod.UID, sandbox)
	if err != nil {
		return id, false, fmt.Errorf("pod %s slept when the node went down, and may have run since: %w", pod, err)
	}
	return snapshots.ID{Key: m.Snapshot, UID: m.UID}, last == m.Sandbox, nil
}

// all returns the reminders by their paths.
func (rs *Reminders) all() map[string]sleep.Reminder {
	all := make(map[string]sleep.Reminder)
	paths, _ := filepath.Glob(filepath.Join(rs.Dir, "*.json")) // fails only if the pattern is malformed
	for _, path := range paths {
		m, err := sleep.ReadReminder(path)
		switch {
		case err == nil:
			all[path] = m
		case !errors.Is(err, fs.ErrNotExist):
			rs.Logger.Error("a pod that slept is not remembered", "error", err)
		}
	}
	return all
}

// Needed returns a pod that slept when the node went down, and is to be restored from the snapshot with this UID or, if
// uid is empty, any with the key.
func (rs *Reminders) Needed(k snapshot.Key, uid string) (pod string) {
	for _, m := range rs.all() {
		if due, err := m.Due(); err == nil && due && m.Snapshot == k && (uid == "" || uid == m.UID) {
			return m.Pod.String()
		}
	}
	return ""
}

// EndedAsleep returns the pod that slept on the snapshot with this UID, and has had no sandbox since: it has ended in
// its sleep, or slept when the node went down. Ok is false if there is none.
func (rs *Reminders) EndedAsleep(ctx context.Context, k snapshot.Key, uid string,
) (pod snapshot.PodRef, ok bool, err error) {
	for _, m := range rs.all() { // before it is known who sleeps: a wake removes its reminder first
		if m.Snapshot != k || m.UID != uid {
			continue
		}
		if slices.ContainsFunc(rs.Marks.All(), func(s sleep.Mark) bool { return s.UID == m.Pod.UID }) {
			return pod, false, nil
		}
		last, err := rs.Runtime.Newest(ctx, m.Pod.UID, "")
		if err != nil {
			return pod, false, fmt.Errorf("pod %s has slept on snapshot %s, and may have run since: %w", m.Pod, k, err)
		}
		if _, err := os.Lstat(rs.Path(m.Pod.UID)); err != nil { // it was removed meanwhile
			return pod, false, nil
		}
		return m.Pod, last == "" || last == m.Sandbox, nil
	}
	return pod, false, nil
}
