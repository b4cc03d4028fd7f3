package duty

import (
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/objects"
)

// clockPause is how often something is looked at again for which it must be certain what time it is.
const clockPause = time.Minute

// trust is what the duties think of the clocks.
type trust struct {
	refused atomic.Int64
	doubted atomic.Bool // since the clocks agreed last
}

// Refused returns how often nothing was deleted for its age, because it was not certain what time it is.
func (d *Duties) Refused() int64 { return d.trust.refused.Load() }

// now returns the time by which something may be deleted that is old: the API server's, as long as this node's clock
// agrees with it. Otherwise it says so once, in the log and by an event on this node, and returns an error of kind
// objects.ErrClock.
func (d *Duties) now() (time.Time, error) {
	now, err := d.Objects.Clock.Agreed()
	if err == nil {
		if d.trust.doubted.Swap(false) {
			d.log.Info("the clocks agree again; what is old is deleted again")
		}
		return now, nil
	}
	d.trust.refused.Add(1)
	if !d.trust.doubted.Swap(true) {
		d.log.Error("nothing is deleted for its age", "error", err)
		d.Objects.NodeEvent(corev1.EventTypeWarning, objects.ActionClock, "Nothing is deleted for its age: "+err.Error())
	}
	return time.Time{}, err
}

// younger returns for how long something is still younger than an age, by the API server's clock alone. It is 0 or less
// if it is not. While that clock is not known, everything is younger.
func (d *Duties) younger(made time.Time, age time.Duration) time.Duration {
	now, err := d.Objects.Clock.Now()
	if err != nil {
		return clockPause
	}
	return made.Add(age).Sub(now)
}
