package idle

import "time"

// cpuSpan is for how long processor time that was not used may be used later: a probe takes its own all at once.
const cpuSpan = 10 * time.Second

// judge follows the counters of one pod that is awake. Packets that an idle pod gets anyway, and processor time that it
// uses anyway, are paid from credit, which comes with time; what is beyond it is use.
type judge struct {
	began   time.Time // of the first look; zero: there was none
	last    time.Time
	used    time.Time // when it was last used
	was     Usage
	credit  float64 // packets
	cpu     float64 // likewise, seconds
	reasons reasons
}

// look takes the counters at a time into account, and reports whether the pod is idle. Busy says that it is used for
// another reason.
func (j *judge) look(now time.Time, u Usage, busy bool, r Rule) (idle bool) {
	rate, burst := r.allowance()
	if j.began.IsZero() || u.Received < j.was.Received || u.CPU < j.was.CPU { // other counters: it has been woken
		*j = judge{began: now, last: now, used: now, was: u, credit: burst, cpu: r.CPU * cpuSpan.Seconds()}
		j.reasons.see(now, u)
		return false
	}
	passed := now.Sub(j.last).Seconds()
	j.credit = min(burst, j.credit+rate*passed) - float64(u.Received-j.was.Received)
	j.cpu = min(r.CPU*cpuSpan.Seconds(), j.cpu+r.CPU*passed) - (u.CPU - j.was.CPU).Seconds()
	j.reasons.see(now, u)
	for cause, used := range [causes]bool{
		Packets: j.credit < 0, Processor: j.cpu < 0, Work: busy, Session: !u.Session.Equal(j.was.Session),
	} {
		if used {
			j.used = now
			j.reasons.times[cause]++
		}
	}
	j.credit, j.cpu = max(j.credit, 0), max(j.cpu, 0)
	j.last, j.was = now, u
	return now.Sub(j.used) >= r.After && now.Sub(j.began) >= r.MinAwake
}

// earlyAfter is how long nobody must have used a pod that is put to sleep before its rule says so.
const earlyAfter = time.Second

// early reports whether the pod may be put to sleep before its rule says so, as far as it has been looked at.
func (j *judge) early(now time.Time, r Rule) bool {
	return now.Sub(j.used) >= earlyAfter && now.Sub(j.began) >= r.MinAwake
}
