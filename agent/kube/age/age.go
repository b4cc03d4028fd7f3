// Package age tells by which time something is deleted because it is old: a PodSnapshot that has expired, or a snapshot
// that no PodSnapshot names.
package age

import (
	"log/slog"
	"sync/atomic"
	"time"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
)

// Pause is how long to wait before an age is judged again, if it is not certain what time it is.
const Pause = time.Minute

// Judge tells the time. Its methods may be called concurrently.
type Judge struct {
	objects *objects.Objects
	log     *slog.Logger
	refused atomic.Int64
	doubted atomic.Bool // since the clocks agreed last
}

// NewJudge returns a judge that reads the clock of o.
func NewJudge(o *objects.Objects, log *slog.Logger) *Judge { return &Judge{objects: o, log: log} }

// Refused returns how often nothing was deleted for its age, because it was not certain what time it is.
func (j *Judge) Refused() int64 { return j.refused.Load() }

// Now returns the time by which something may be deleted that is old: the API server's, as long as this node's clock
// agrees with it. Otherwise it says so once, in the log and by an event on this node, and returns an error of kind
// objects.ErrClock.
func (j *Judge) Now() (time.Time, error) {
	now, err := j.objects.Clock.Agreed()
	if err == nil {
		if j.doubted.Swap(false) {
			j.log.Info("the clocks agree again; what is old is deleted again")
		}
		return now, nil
	}
	j.refused.Add(1)
	if !j.doubted.Swap(true) {
		j.log.Error("nothing is deleted for its age", "error", err)
		j.objects.Events.Node(notice.NothingDeleted, err)
	}
	return time.Time{}, err
}

// Younger returns for how long something is still younger than an age, by the API server's clock alone. It is 0 or less
// if it is not. While that clock is not known, everything is younger.
func (j *Judge) Younger(made time.Time, age time.Duration) time.Duration {
	now, err := j.objects.Clock.Now()
	if err != nil {
		return Pause
	}
	return made.Add(age).Sub(now)
}
