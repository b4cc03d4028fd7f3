package kube

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// measure registers the metrics of this agent's part in the cluster.
func (c *Cluster) measure() error {
	if c.cfg.Metrics == nil {
		return nil
	}
	for _, m := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "diapause_clock_skew_seconds",
			Help: "How far this node's clock is ahead of the API server's; NaN while that is not known.",
		}, c.skew),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "diapause_clock_refusals_total",
			Help: "How often nothing was deleted for its age, because it was not certain what time it is.",
		}, func() float64 { return float64(c.duties.Refused()) }),
	} {
		if err := c.cfg.Metrics.Register(m); err != nil {
			return err
		}
	}
	return nil
}

// skew returns how far this node's clock is ahead, in seconds.
func (c *Cluster) skew() float64 {
	skew, err := c.objects.Clock.Skew()
	if err != nil {
		return math.NaN()
	}
	return skew.Seconds()
}
