package idle

import (
	"testing"
	"testing/synctest"
	"time"
)

// day is what happens to a pod in each second.
type day func(second int) (packets uint64, cpu time.Duration, busy bool)

// idleAt returns the second in which a pod is first idle, or -1 if it is not within ten minutes.
func idleAt(r Rule, d day) (second int) {
	var j judge
	var u Usage
	for s := range 600 {
		packets, cpu, busy := d(s)
		u.Received, u.CPU = u.Received+packets, u.CPU+cpu
		if j.look(time.Now(), u, busy, r) {
			return s
		}
		time.Sleep(time.Second)
	}
	return -1
}

func TestRule(t *testing.T) {
	rule := Rule{After: 10 * time.Second, CPU: 0.05, Packets: 6}
	probed := rule
	probed.Probes = []Probe{{Every: 5 * time.Second, Packets: 7}}
	strict := probed
	strict.Packets = 0
	long := rule
	long.MinAwake = time.Minute
	at := func(every int, packets uint64) day {
		return func(s int) (uint64, time.Duration, bool) {
			if s%every == 0 {
				return packets, 0, false
			}
			return 0, 0, false
		}
	}
	for name, tc := range map[string]struct {
		rule Rule
		day  day
		want int
	}{
		"nothing":                  {rule, at(1, 0), 10},
		"not before it has run":    {long, at(1, 0), 60},
		"a neighbour's question":   {rule, at(30, 1), 10},
		"a request every 5 s":      {rule, at(5, 6), -1},
		"probes":                   {probed, at(5, 7), 10},
		"more than probes":         {strict, at(5, 9), -1},
		"probes and a request too": {probed, at(1, 3), -1},
		"probes without a rule":    {rule, at(5, 7), -1},
		"work": {rule, func(int) (uint64, time.Duration, bool) {
			return 0, 200 * time.Millisecond, false
		}, -1},
		"a probe's work": {rule, func(s int) (uint64, time.Duration, bool) {
			if s%10 == 0 {
				return 0, 300 * time.Millisecond, false
			}
			return 0, 0, false
		}, 10},
		"a little work": {rule, func(int) (uint64, time.Duration, bool) {
			return 0, 40 * time.Millisecond, false
		}, 10},
		"saved meanwhile": {rule, func(s int) (uint64, time.Duration, bool) { return 0, 0, s < 20 }, 29},
		"used for a while": {rule, func(s int) (uint64, time.Duration, bool) {
			if s < 30 {
				return 100, 0, false
			}
			return 0, 0, false
		}, 39},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := idleAt(tc.rule, tc.day); got != tc.want {
					t.Errorf("idle in second %d, want %d", got, tc.want)
				}
			})
		})
	}
}

// TestNewCounters: counters that have gone back are those of another sandbox, which has just begun.
func TestNewCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Rule{After: 10 * time.Second, CPU: 1}
		var j judge
		j.look(time.Now(), Usage{Received: 1000, CPU: time.Hour}, false, r)
		time.Sleep(20 * time.Second)
		if j.look(time.Now(), Usage{Received: 1000}, false, r) {
			t.Error("a pod that was just woken is idle")
		}
		time.Sleep(10 * time.Second)
		if !j.look(time.Now(), Usage{Received: 1000}, false, r) {
			t.Error("it is not idle later")
		}
	})
}
