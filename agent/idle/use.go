package idle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"diapause.dev/runsc/traffic"
)

// longAwake is for how long a pod has been awake, and has not been put to sleep, when [Config.LongAwake] is told why.
// It is longer for a rule that asks for a longer idle time.
const longAwake = 10 * time.Minute

// Use is what has kept a pod awake.
type Use struct {
	For     time.Duration   // how long
	Packets float64         // that came for it a minute
	Allowed float64         // packets a minute that an idle pod may get, with those of its probes
	CPU     float64         // processors that its sandbox has used on average
	Limit   float64         // processors that an idle pod uses at most
	Senders []traffic.Count // of most of these packets, in some seconds; none: not known
	Why     []Cause         // what counted as use; the most frequent first
	Err     error           // why its counters are not known; then only For is set beside it
}

// Cause is a kind of use.
type Cause int

// The kinds of use.
const (
	Packets   Cause = iota // more packets came than an idle pod gets
	Processor              // its sandbox took more processor time than an idle pod takes
	Session                // a session by exec or of a forwarded port was open, or a process that exec has started ran
	Work                   // it was being loaded or saved
	Falling                // packets came while it went to sleep
	Answer                 // a client waited for its answer
	causes
)

// String says for people what has kept the pod awake.
func (u Use) String() string {
	if u.Err != nil {
		return fmt.Sprintf("for %s it has not been known whether anybody uses it: %v", u.For.Round(time.Second), u.Err)
	}
	var all []string
	for _, c := range u.Why {
		all = append(all, u.says(c))
	}
	return fmt.Sprintf("for %s it has not been put to sleep: %s", u.For.Round(time.Second), strings.Join(all, "; "))
}

func (u Use) says(c Cause) string {
	switch c {
	case Packets:
		return fmt.Sprintf("it gets %.0f packets a minute, and %.0f are allowed with those of its probes%s",
			u.Packets, u.Allowed, u.senders())
	case Processor:
		return fmt.Sprintf("its sandbox uses %.0f millicores, in bursts or always, and %.0f are allowed",
			1000*u.CPU, 1000*u.Limit)
	case Session:
		return "a process of kubectl exec ran, or a port was forwarded"
	case Work:
		return "it was being restored or checkpointed"
	case Answer:
		return "clients waited for its answers"
	}
	return "packets came whenever it was about to sleep"
}

// senders says who sends most packets.
func (u Use) senders() string {
	if len(u.Senders) == 0 {
		return " (diapause traffic on its node shows from whom)"
	}
	var all []string
	for _, c := range u.Senders {
		text := c.Protocol
		if c.Port != 0 {
			text += fmt.Sprintf(" to port %d", c.Port)
		}
		if c.From.IsValid() {
			text += " from " + c.From.String()
		}
		all = append(all, text)
	}
	return ": most are " + strings.Join(all, ", ")
}

// reasons are what keeps a pod awake that is not put to sleep. Its zero value has seen nothing.
type reasons struct {
	since time.Time // of the first look; zero: there was none
	first Usage
	last  Usage
	times [causes]int // how often each was seen
	err   error       // why the last look saw nothing
	told  bool
}

// see notes the counters of a pod.
func (v *reasons) see(now time.Time, u Usage) {
	if v.since.IsZero() {
		v.since, v.first = now, u
	}
	v.last, v.err = u, nil
}

// blind notes that nothing could be seen of the pod.
func (v *reasons) blind(now time.Time, err error) {
	if v.since.IsZero() {
		v.since = now
	}
	v.err = err
}

// tried notes what has become of a pod that was found idle. If it was not used, it sleeps, or whoever was asked has
// said why it does not.
func (v *reasons) tried(is Verdict) {
	switch {
	case is.Owes:
		v.times[Answer]++
	case is.Used:
		v.times[Falling]++
	case is.InUse:
		v.times[Session]++
	default:
		*v = reasons{}
	}
}

// due returns what has kept the pod awake if it is time to tell. It returns it once.
func (v *reasons) due(now time.Time, r Rule) (u Use, ok bool) {
	u.For = now.Sub(v.since)
	if v.told || v.since.IsZero() || u.For < max(longAwake, 3*r.After, 2*r.MinAwake) {
		return u, false
	}
	if u.Err = v.err; u.Err != nil {
		v.told = true
		return u, true
	}
	rate, _ := r.allowance()
	u.Packets, u.Allowed = float64(v.last.Received-v.first.Received)/u.For.Minutes(), 60*rate
	u.CPU, u.Limit = (v.last.CPU-v.first.CPU).Seconds()/u.For.Seconds(), r.CPU
	for c := range causes {
		if v.times[c] > 0 {
			u.Why = append(u.Why, c)
		}
	}
	slices.SortStableFunc(u.Why, func(a, b Cause) int { return v.times[b] - v.times[a] })
	v.told = len(u.Why) > 0
	return u, v.told
}
