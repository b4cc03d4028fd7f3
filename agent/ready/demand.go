package ready

import (
	"sync"
	"time"
)

// Wish is whether a pod is to be ready when it sleeps, as far as the budget allows. A SleepPolicy says so.
type Wish string

// Wishes.
const (
	Auto   Wish = "Auto"   // if it has slept for a while, and others are not more likely to wake
	Always Wish = "Always" // at once, and before all others
	Never  Wish = "Never"
)

const (
	// wakesFor is for how long a wake says that a pod may soon wake again.
	wakesFor = time.Hour
	// mostWakes bounds how many wakes of a pod are counted.
	mostWakes = 16
)

// Demand is what is known of who should be ready: what policies wish, and how often pods have woken, also of those that
// are awake. It tells the [Pool] that something has changed. Its methods may be called concurrently, and do not block.
type Demand struct {
	changed chan struct{} // a signal that the pool is to look again

	mu    sync.Mutex
	wish  map[string]Wish        // by UID of the pod
	wakes map[string][]time.Time // by UID of the pod, in order
	await bool                   // the wishes are not known yet
}

// NewDemand returns a demand of which nothing is known. If awaitWishes is set, the pool leaves all pods as they are,
// unless the node's memory is short, until WishesKnown is called.
func NewDemand(awaitWishes bool) *Demand {
	return &Demand{
		changed: make(chan struct{}, 1), wish: make(map[string]Wish), wakes: make(map[string][]time.Time),
		await: awaitWishes,
	}
}

// Wish notes whether a pod is to be ready when it sleeps. For a pod of which nothing is known, that is Auto.
func (d *Demand) Wish(uid string, w Wish) {
	if d.wants(uid, w) {
		d.Changed()
	}
}

// wants notes a pod's wish and reports whether it is another one.
func (d *Demand) wants(uid string, w Wish) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, known := d.wish[uid]
	if w == Always || w == Never {
		d.wish[uid] = w
		return w != old
	}
	delete(d.wish, uid)
	return known
}

// WishesKnown says that Wish was called for all pods for which it has to be.
func (d *Demand) WishesKnown() {
	d.mu.Lock()
	news := d.await
	d.await = false
	d.mu.Unlock()
	if news {
		d.Changed()
	}
}

// awaited reports whether the wishes are still to come.
func (d *Demand) awaited() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.await
}

// Woke must be called when a pod was woken.
func (d *Demand) Woke(uid string) {
	if uid != "" {
		d.woke(uid, time.Now())
	}
	d.Changed()
}

// Changed must be called when a pod has fallen asleep or ended, or a wake waits.
func (d *Demand) Changed() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// woke notes a wake, and forgets those that are long ago, of all pods.
func (d *Demand) woke(uid string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wakes[uid] = append(d.wakes[uid], now)
	for uid, times := range d.wakes {
		for len(times) > 0 && (now.Sub(times[0]) >= wakesFor || len(times) > mostWakes) {
			times = times[1:]
		}
		if d.wakes[uid] = times; len(times) == 0 {
			delete(d.wakes, uid)
		}
	}
}

// of returns a pod's wish, and how often it has woken within the last hour.
func (d *Demand) of(uid string, now time.Time) (w Wish, wakes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.wakes[uid] {
		if now.Sub(at) < wakesFor {
			wakes++
		}
	}
	if w = d.wish[uid]; w == "" {
		w = Auto
	}
	return w, wakes
}
