package agent

import (
	"slices"
	"strconv"
	"time"

	"diapause.dev/agent/ready"
	localv1 "diapause.dev/api/local/v1"
	"github.com/prometheus/client_golang/prometheus"
)

// sleepMetrics are the metrics of pods that sleep. They implement sleep.Metrics and admission.Metrics.
type sleepMetrics struct {
	falls      *prometheus.CounterVec
	wakes      *prometheus.CounterVec
	failures   prometheus.Counter
	waking     *prometheus.HistogramVec
	packets    *prometheus.CounterVec
	admissions *prometheus.CounterVec
	waits      prometheus.Histogram
	madeRoom   *prometheus.CounterVec
	madeReady  *prometheus.CounterVec
	dropped    *prometheus.CounterVec
}

// wakeCauses are the causes of a wake that are counted apart.
var wakeCauses = []string{"packet", "exec", "port-forward", "signal", "create", "request", "checkpoint"}

// Outcomes of the admission of a wake.
const (
	atOnce  = "at-once"
	waited  = "waited"
	givenUp = "given-up"
)

// newSleepMetrics returns metrics that are registered.
func newSleepMetrics(r prometheus.Registerer) *sleepMetrics {
	m := &sleepMetrics{
		falls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_sleeps_total",
			Help: "Requests to put a pod to sleep that have ended.",
		}, []string{"result"}),
		wakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_wakes_total",
			Help: "Pods that were woken, by the cause.",
		}, []string{"cause"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "diapause_failed_wakes_total",
			Help: "Attempts to wake a pod that have failed.",
		}),
		waking: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "diapause_wake_seconds",
			Help: "Time from the cause of a wake until the pod ran, by whether its sandbox was there before.", Buckets: seconds,
		}, []string{"ready"}),
		packets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_wake_packets_total",
			Help: "Packets that came for pods that slept, by what became of them.",
		}, []string{"result"}),
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_wake_admissions_total",
			Help: "Wakes for which there was memory at once, that waited for it, or that waited until their pod ended.",
		}, []string{"result"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "diapause_wake_wait_seconds",
			Help: "Time that wakes waited for memory, if they did.", Buckets: seconds,
		}),
		madeRoom: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_sleeps_for_memory_total",
			Help: "Idle pods that were to sleep so that others could wake.",
		}, []string{"result"}),
		madeReady: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_pods_made_ready_total",
			Help: "Pods that sleep whose sandboxes were to be created for their wakes.",
		}, []string{"result"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_ready_pods_dropped_total",
			Help: "Pods that sleep on without the sandbox that was created for their wake, by the reason.",
		}, []string{"reason"}),
	}
	begin(results, m.falls, m.madeRoom, m.madeReady)
	begin([]string{ready.ForMemory, ready.ForNewer, ready.ForPolicy}, m.dropped)
	begin([]string{atOnce, waited, givenUp}, m.admissions)
	begin(append(slices.Clone(wakeCauses), "other"), m.wakes)
	begin([]string{"delivered", "dropped"}, m.packets)
	for _, was := range []bool{true, false} {
		m.waking.WithLabelValues(strconv.FormatBool(was))
	}
	r.MustRegister(m.falls, m.wakes, m.failures, m.waking, m.packets, m.admissions, m.waits, m.madeRoom,
		m.madeReady, m.dropped)
	return m
}

// countSleeps registers metrics that are counted when they are asked for. asleep counts the pods that sleep, waiting
// those whose wake waits for memory.
func countSleeps(r prometheus.Registerer, asleep, waiting, isReady func() int) {
	r.MustRegister(
		gauge("diapause_pods_asleep", "Pods of this node that sleep.", asleep),
		gauge("diapause_pods_ready", "Pods of this node that sleep and have a sandbox for their wake.", isReady),
		gauge("diapause_wakes_waiting", "Pods of this node that are to be woken and wait for memory.", waiting))
}

// gauge returns a metric that is counted when it is asked for.
func gauge(name, help string, count func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(count()) })
}

// Slept implements sleep.Metrics.
func (m *sleepMetrics) Slept(err error) { m.falls.WithLabelValues(result(err)).Inc() }

// Woke implements sleep.Metrics.
func (m *sleepMetrics) Woke(w *localv1.Woken) {
	cause := w.GetCause()
	if !slices.Contains(wakeCauses, cause) {
		cause = "other"
	}
	m.wakes.WithLabelValues(cause).Inc()
	m.waking.WithLabelValues(strconv.FormatBool(w.GetReady())).Observe(w.GetTook().AsDuration().Seconds())
	m.packets.WithLabelValues("delivered").Add(float64(max(w.GetDelivered(), 0)))
	m.packets.WithLabelValues("dropped").Add(float64(max(w.GetDropped(), 0)))
}

// MadeReady implements ready.Metrics.
func (m *sleepMetrics) MadeReady(err error) { m.madeReady.WithLabelValues(result(err)).Inc() }

// DroppedReady implements ready.Metrics.
func (m *sleepMetrics) DroppedReady(reason string) { m.dropped.WithLabelValues(reason).Inc() }

// WakeFailed implements sleep.Metrics.
func (m *sleepMetrics) WakeFailed() { m.failures.Inc() }

// WakeAdmitted implements admission.Metrics.
func (m *sleepMetrics) WakeAdmitted(wait time.Duration) {
	if wait == 0 {
		m.admissions.WithLabelValues(atOnce).Inc()
		return
	}
	m.admissions.WithLabelValues(waited).Inc()
	m.waits.Observe(wait.Seconds())
}

// WakeGivenUp implements admission.Metrics.
func (m *sleepMetrics) WakeGivenUp(wait time.Duration) {
	m.admissions.WithLabelValues(givenUp).Inc()
	m.waits.Observe(wait.Seconds())
}

// MadeRoom implements admission.Metrics.
func (m *sleepMetrics) MadeRoom(err error) { m.madeRoom.WithLabelValues(result(err)).Inc() }
