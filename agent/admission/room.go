package admission

import (
	"context"
	"slices"
	"time"
)

const (
	// restTime is the pause after no pod could be put to sleep.
	restTime = time.Second
	// failedTime is how long a pod is left alone that could not be put to sleep.
	failedTime = 30 * time.Second
)

// rest is what a Queue keeps about the pods that it has put to sleep. The Queue's lock guards it.
type rest struct {
	falling bool                 // a pod is being put to sleep
	again   time.Time            // when to look for another one
	failed  map[string]time.Time // when a pod could not be put to sleep, by UID
}

// makeRoom has one pod put to sleep at a time, as long as wakes are short of memory. The caller holds q.mu.
func (q *Queue) makeRoom(short []*waiter, now time.Time) {
	if q.Cluster == nil || q.rest.falling || len(short) == 0 || now.Before(q.rest.again) {
		return
	}
	lacks := short[0].need - short[0].spare
	for _, x := range short {
		lacks = min(lacks, x.need-x.spare)
	}
	q.rest.falling = true
	q.Life.Go(func() { q.putOneToSleep(q.Life.Context(), lacks) })
}

// putOneToSleep puts the longest idle pod to sleep, if all that may sleep have that many bytes together. Otherwise it
// would help nobody.
func (q *Queue) putOneToSleep(ctx context.Context, lacks int64) {
	c, ok := first(q.candidates(), lacks)
	var err error
	if ok {
		err = q.Cluster.PutToSleep(ctx, c.Pod)
		q.Metrics.MadeRoom(err)
		q.Logger.Info("an idle pod was to sleep so that another may wake", "pod", c.Pod.String(), "memory", c.Memory,
			"error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.rest.falling = false
	if err != nil {
		q.rest.failed[c.Pod.UID] = now
	}
	if !ok {
		q.rest.again = now.Add(restTime)
	}
	if ctx.Err() == nil {
		q.look(now)
	}
}

// candidates returns the pods that may be put to sleep, the longest idle first, without those that have just failed to.
func (q *Queue) candidates() []Candidate {
	idle := q.Cluster.Idle()
	q.mu.Lock()
	defer q.mu.Unlock()
	for uid, at := range q.rest.failed {
		if time.Since(at) >= failedTime {
			delete(q.rest.failed, uid)
		}
	}
	return slices.DeleteFunc(idle, func(c Candidate) bool {
		_, failed := q.rest.failed[c.Pod.UID]
		return failed
	})
}

// first returns the first candidate, if all together have that many bytes.
func first(all []Candidate, bytes int64) (Candidate, bool) {
	for _, c := range all {
		bytes -= c.Memory
	}
	if len(all) == 0 || bytes > 0 {
		return Candidate{}, false
	}
	return all[0], true
}
