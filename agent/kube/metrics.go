package kube

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/objects"
)

// measure registers the metrics of the clocks, and of what is not swept. With to nil there are none.
func measure(to prometheus.Registerer, clock *objects.Clock, judge *age.Judge, stopped func() int64) error {
	if to == nil {
		return nil
	}
	for _, m := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "diapause_clock_skew_seconds",
			Help: "How far this node's clock is ahead of the API server's; NaN while that is not known.",
		}, func() float64 { return skew(clock) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "diapause_clock_refusals_total",
			Help: "How often nothing was deleted for its age, because it was not certain what time it is.",
		}, func() float64 { return float64(judge.Refused()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "diapause_sweeps_stopped",
			Help: "Stores without garbage collection, because etcd was restored from a backup or another cluster " +
				"adopted them; of an agent: 0 or 1.",
		}, func() float64 { return float64(stopped()) }),
	} {
		if err := to.Register(m); err != nil {
			return err
		}
	}
	return nil
}

// skew returns how far this node's clock is ahead, in seconds.
func skew(clock *objects.Clock) float64 {
	by, err := clock.Skew()
	if err != nil {
		return math.NaN()
	}
	return by.Seconds()
}
