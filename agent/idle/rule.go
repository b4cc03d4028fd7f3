package idle

import (
	"time"

	"diapause.dev/runsc/traffic"
)

// Rule says when a pod is idle.
type Rule struct {
	After    time.Duration // how long nobody must have used it
	MinAwake time.Duration // how long it stays awake at least, from the first look after it began to run or was woken
	CPU      float64       // processors that an idle pod uses at most on average; cpuSpan's worth may be used at once
	// Packets is how many packets a minute an idle pod gets at most, besides those of its probes. As many may come at
	// once.
	Packets float64
	Probes  []Probe
	Ignored []traffic.Ignored // is not counted
	// AnswerWithin is for how long a request counts as use if it is not answered. 0: it does not. Counters do not show it:
	// it is asked for when a pod is idle by them.
	AnswerWithin time.Duration
}

// Probe is what one probe of the kubelet sends.
type Probe struct {
	Every   time.Duration
	Packets float64 // that the pod gets each time
}

// allowance returns how many packets of an idle pod may come per second, and at once.
func (r Rule) allowance() (rate, burst float64) {
	rate, burst = r.Packets/60, r.Packets
	for _, p := range r.Probes {
		rate += p.Packets / max(p.Every, time.Second).Seconds()
		burst += p.Packets
	}
	return rate, burst
}

// Usage is what the kernel has counted for a pod.
type Usage struct {
	Received uint64        // packets that came for it
	CPU      time.Duration // processor time of its sandbox
	Session  time.Time     // when a session of it was last known to be open, by exec or a forwarded port; zero: never
}
