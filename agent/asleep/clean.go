package asleep

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"sync"
	"time"

	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/sleep"
)

// CleanTemporary removes what an agent that was killed has left of its writes.
func (rs *Reminders) CleanTemporary() {
	if err := durable.Clean(rs.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		rs.Logger.Warn("temporary files stay", "error", err)
	}
}

// Clean removes the reminders that no longer count. Preparing reports whether a sandbox is to be restored and has got
// nothing yet.
func (rs *Reminders) Clean(ctx context.Context, preparing func(sandbox string) bool) {
	all := rs.all() // before it is known who sleeps: what is written later stays
	rs.ended.forget(func(podUID string) bool {
		_, ok := all[rs.Path(podUID)]
		return !ok
	})
	asleep := make(map[string]bool)
	for _, m := range rs.Marks.All() {
		asleep[m.UID] = true
	}
	for path, m := range all {
		if asleep[m.Pod.UID] || !rs.outdated(ctx, m, preparing) {
			continue
		}
		if now, err := sleep.ReadReminder(path); err != nil || now != m { // a wake may have failed meanwhile
			continue
		}
		if err := durable.Remove(path); err != nil {
			rs.Logger.Warn("a reminder is not removed", "pod", m.Pod.String(), "error", err)
		}
	}
}

// outdated reports whether the reminder of a pod that does not sleep no longer counts: the pod has ended in its sleep,
// has run since, or is gone.
func (rs *Reminders) outdated(ctx context.Context, m sleep.Reminder, preparing func(sandbox string) bool) bool {
	due, err := m.Due()
	if err != nil || !due && !rs.Clustered {
		return err == nil
	}
	last, err := rs.Runtime.Newest(ctx, m.Pod.UID, "")
	switch {
	case err != nil:
		return false
	case rs.Clustered && (last == "" || last == m.Sandbox && !due):
		return rs.ended.since(m.Pod.UID) > endedTime
	}
	return last != m.Sandbox && !preparing(last)
}

// endedTime bounds how long the reminder of a pod that ended in its sleep waits until the cluster has decided whether
// the pod's successors inherit its snapshot.
const endedTime = time.Hour

// endedPods are the pods that ended in their sleep, of which the cluster has not decided. Its methods may be called
// concurrently. The zero value has none.
type endedPods struct {
	mu  sync.Mutex
	all map[string]time.Time // since when that is known, by the pod's UID
}

// since returns how long this agent has known that a pod ended in its sleep.
func (e *endedPods) since(podUID string) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = make(map[string]time.Time)
	}
	if _, ok := e.all[podUID]; !ok {
		e.all[podUID] = time.Now()
	}
	return time.Since(e.all[podUID])
}

// forget forgets pods that have no reminder any more.
func (e *endedPods) forget(gone func(podUID string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.all, func(podUID string, _ time.Time) bool { return gone(podUID) })
}
