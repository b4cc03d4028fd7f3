package idle

import (
	"context"
	"slices"
	"time"

	"diapause.dev/api/snapshot"
)

// A pod that is idle may be put to sleep before its rule says so, if its memory is needed. The least time for which it
// stays awake counts all the same, and so does everything that keeps it from being idle.

// Spare is a pod that may be put to sleep early.
type Spare struct {
	Pod    snapshot.PodRef
	Memory int64     // bytes that its sandbox has allocated
	Since  time.Time // since when nobody has used it
}

// Spares returns the pods that may be put to sleep early, as far as was seen at the last look. Those that nobody has
// used for the longest time come first.
func (w *Watcher) Spares() (all []Spare) {
	gauges := make(map[string]Gauge)
	w.mu.Lock()
	for uid, p := range w.pods {
		if p.spare.gauge != nil && !p.asleep && !p.renewed && !p.acting {
			gauges[uid] = p.spare.gauge
			all = append(all, Spare{Pod: p.pod, Since: p.spare.since})
		}
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b Spare) int { return a.Since.Compare(b.Since) })
	for i := range all {
		all[i].Memory, _ = gauges[all[i].Pod.UID].Memory() // 0: it has just ended
	}
	return all
}

// call asks for a pod to be put to sleep early.
type call struct {
	uid  string
	done chan Verdict // has room for one; closed if the pod may not be put to sleep
}

// Early looks at a pod, and calls Idle for it if it may be put to sleep early. Otherwise ok is false. Run must run.
func (w *Watcher) Early(ctx context.Context, uid string) (v Verdict, ok bool) {
	c := call{uid: uid, done: make(chan Verdict, 1)}
	select {
	case w.early <- c:
	case <-ctx.Done():
		return v, false
	}
	select {
	case v, ok = <-c.done:
		return v, ok
	case <-ctx.Done():
		return v, false
	}
}
