package kube

import (
	"testing"
	"time"
)

// TestLeaseTimes: few agents are quick, and many are no burden.
func TestLeaseTimes(t *testing.T) {
	for _, n := range []int64{0, 1, 3, 299, 300, 301, 1000, 1500, 5000, 1 << 40} {
		x := timesFor(n)
		if x.retry < 3*time.Second || x.retry > 15*time.Second || x.renew <= x.retry*12/10 || x.hold <= x.renew {
			t.Errorf("%d agents: %+v", n, x)
		}
		if n <= 300 && x != (leaseTimes{10 * time.Second, 7 * time.Second, 3 * time.Second}) {
			t.Errorf("%d agents: %+v", n, x)
		}
		if perSecond := float64(n) / (1.6 * x.retry.Seconds()); n <= 1500 && perSecond > 63 {
			t.Errorf("%d agents try %.0f times a second", n, perSecond)
		}
	}
}
