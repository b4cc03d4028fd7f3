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

// habits are what is known of pods, also of those that are awake. Its methods may be called concurrently.
type habits struct {
	mu    sync.Mutex
	wish  map[string]Wish        // by UID of the pod
	wakes map[string][]time.Time // by UID of the pod, in order
	await bool                   // the wishes are not known yet
}

func newHabits() *habits {
	return &habits{wish: make(map[string]Wish), wakes: make(map[string][]time.Time)}
}

// wants notes a pod's wish and reports whether it is another one.
func (h *habits) wants(uid string, w Wish) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, known := h.wish[uid]
	if w == Always || w == Never {
		h.wish[uid] = w
		return w != old
	}
	delete(h.wish, uid)
	return known
}

// awaits notes whether the wishes are still to come, and reports whether it knew otherwise.
func (h *habits) awaits(await bool) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, h.await = h.await != await, await
	return news
}

// awaited reports whether the wishes are still to come.
func (h *habits) awaited() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.await
}

// woke notes a wake, and forgets those that are long ago, of all pods.
func (h *habits) woke(uid string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakes[uid] = append(h.wakes[uid], now)
	for uid, times := range h.wakes {
		for len(times) > 0 && (now.Sub(times[0]) >= wakesFor || len(times) > mostWakes) {
			times = times[1:]
		}
		if h.wakes[uid] = times; len(times) == 0 {
			delete(h.wakes, uid)
		}
	}
}

// of returns a pod's wish, and how often it has woken within the last hour.
func (h *habits) of(uid string, now time.Time) (w Wish, wakes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.wakes[uid] {
		if now.Sub(at) < wakesFor {
			wakes++
		}
	}
	if w = h.wish[uid]; w == "" {
		w = Auto
	}
	return w, wakes
}
