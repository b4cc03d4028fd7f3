package asleep

import (
	"iter"
	"log/slog"

	"diapause.dev/agent/requests"
	"diapause.dev/runsc/sleep"
)

// Marks are the marks of the pods that sleep. They are in the directories of the requests that wake the pods.
type Marks struct {
	requests requests.Dir
	log      *slog.Logger
}

// NewMarks returns the marks in the directories of requests.
func NewMarks(d requests.Dir, log *slog.Logger) *Marks { return &Marks{requests: d, log: log} }

// Requests returns the pods that sleep, by the requests that wake them.
func (k *Marks) Requests() iter.Seq2[string, sleep.Mark] {
	return func(yield func(string, sleep.Mark) bool) {
		requests, err := k.requests.All()
		if err != nil {
			k.log.Warn("request directories unreadable", "error", err)
		}
		for _, request := range requests {
			if m, ok := sleep.Marked(k.requests.Path(request)); ok && !yield(request, m) {
				return
			}
		}
	}
}

// All returns the marks of the pods that sleep.
func (k *Marks) All() (all []sleep.Mark) {
	for _, m := range k.Requests() {
		all = append(all, m)
	}
	return all
}

// Asleep reports whether a request is the one by which a pod that sleeps is woken.
func (k *Marks) Asleep(request string) bool {
	_, ok := sleep.Marked(k.requests.Path(request))
	return ok
}

// Held reports whether a request's pod sleeps, and nothing of its memory is given out.
func (k *Marks) Held(request string) bool {
	return k.Asleep(request) && sleep.MemoryHeld(k.requests.Path(request))
}
