package agent

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sleepMetrics are the metrics of pods that sleep. They implement sleep.Metrics.
type sleepMetrics struct {
	falls   *prometheus.CounterVec
	wakes   *prometheus.CounterVec
	waking  prometheus.Histogram
	packets *prometheus.CounterVec
}

// wakeCauses are the causes of a wake that are counted apart.
var wakeCauses = []string{"packet", "exec", "port-forward", "signal", "request"}

// newSleepMetrics returns metrics that are registered. asleep counts the pods that sleep.
func newSleepMetrics(r prometheus.Registerer, asleep func() int) *sleepMetrics {
	m := &sleepMetrics{
		falls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_sleeps_total",
			Help: "Requests to put a pod to sleep that have ended.",
		}, []string{"result"}),
		wakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_wakes_total",
			Help: "Pods that were woken, by the cause.",
		}, []string{"cause"}),
		waking: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "diapause_wake_seconds",
			Help: "Time from the cause of a wake until the pod ran.", Buckets: seconds,
		}),
		packets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_wake_packets_total",
			Help: "Packets that came for pods that slept, by what became of them.",
		}, []string{"result"}),
	}
	for _, cause := range append(slices.Clone(wakeCauses), "other") {
		m.wakes.WithLabelValues(cause)
	}
	r.MustRegister(m.falls, m.wakes, m.waking, m.packets, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "diapause_pods_asleep",
		Help: "Pods of this node that sleep.",
	}, func() float64 { return float64(asleep()) }))
	return m
}

// Slept implements sleep.Metrics.
func (m *sleepMetrics) Slept(err error) { m.falls.WithLabelValues(result(err)).Inc() }

// Woke implements sleep.Metrics.
func (m *sleepMetrics) Woke(cause string, took time.Duration, delivered, dropped int64) {
	if !slices.Contains(wakeCauses, cause) {
		cause = "other"
	}
	m.wakes.WithLabelValues(cause).Inc()
	m.waking.Observe(took.Seconds())
	m.packets.WithLabelValues("delivered").Add(float64(max(delivered, 0)))
	m.packets.WithLabelValues("dropped").Add(float64(max(dropped, 0)))
}
