package slumber

import (
	"sync"
	"time"
)

// waken says how a wake went.
type waken struct {
	cause   string
	took    time.Duration
	failure error // not nil: the pod could not be woken
	at      time.Time
}

// maxWoke bounds how many wakes are remembered until they are shown. Beyond it they are shown without their cause.
const maxWoke = 10000

// wakes are the wakes that the pods' conditions do not show yet. Its methods may be called concurrently.
type wakes struct {
	mu  sync.Mutex
	all map[string]waken // by the pod's UID
}

func newWakes() *wakes { return &wakes{all: make(map[string]waken)} }

// put keeps how a pod's wake went.
func (ws *wakes) put(uid string, w waken) {
	w.at = time.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) < maxWoke {
		ws.all[uid] = w
	}
}

func (ws *wakes) of(uid string) (w waken, known bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, known = ws.all[uid]
	return w, known
}

// forget forgets how a wake went that was told before a time.
func (ws *wakes) forget(uid string, before time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all[uid].at.Before(before) {
		delete(ws.all, uid)
	}
}
