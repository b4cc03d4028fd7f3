package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"diapause.dev/agent/backlog"
	"diapause.dev/agent/budget"
	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// metrics holds the agent's metrics.
type metrics struct {
	registry    *prometheus.Registry
	checkpoints *prometheus.CounterVec
	stages      *prometheus.HistogramVec
	whole       prometheus.Histogram
	restores    *prometheus.CounterVec
	loading     prometheus.Histogram
	loaded      prometheus.Counter
	refusals    prometheus.Counter
	beyond      *prometheus.CounterVec
	held        prometheus.Gauge
	queued      prometheus.Gauge
	waiting     *prometheus.GaugeVec
}

// seconds are histogram buckets from a millisecond to a minute.
var seconds = prometheus.ExponentialBuckets(0.001, 2, 17)

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		checkpoints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_checkpoints_total",
			Help: "Checkpoint requests that have ended.",
		}, []string{"result"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "diapause_checkpoint_stage_seconds",
			Help: "Time spent in each stage of a checkpoint; capture is the larger part of the pause.", Buckets: seconds,
		}, []string{"stage"}),
		whole: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "diapause_checkpoint_seconds",
			Help: "Time from the request to its end.", Buckets: seconds,
		}),
		restores: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_restores_total",
			Help: "Sandboxes that were restored, or failed to be.",
		}, []string{"result"}),
		loading: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "diapause_restore_load_seconds",
			Help: "Time from the shim's question to the sandbox having all its memory.", Buckets: seconds,
		}),
		loaded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "diapause_restore_bytes_total",
			Help: "Bytes handed to sandboxes that were restored.",
		}),
		refusals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "diapause_restore_refusals_total",
			Help: "Restores that were refused before the sandbox started.",
		}),
		beyond: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_checkpoint_refusals_total",
			Help: "Checkpoints that were refused because of a budget of the node, by the budget.",
		}, []string{"budget"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "diapause_checkpoint_memory_bytes",
			Help: "Bytes of the agent's memory that checkpoints in progress hold.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "diapause_checkpoints_waiting",
			Help: "Checkpoints that wait for memory.",
		}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "diapause_replications_waiting",
			Help: "Snapshots on this node whose replication has failed and is retried, by the reason.",
		}, []string{"reason"}),
	}
	m.Waiting(nil)
	begin(results, m.checkpoints, m.restores)
	begin(budget.Names, m.beyond)
	m.registry.MustRegister(m.checkpoints, m.stages, m.whole, m.restores, m.loading, m.loaded, m.refusals, m.waiting,
		m.beyond, m.held, m.queued, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// BuildInfo is a metric that names the version of this program.
func BuildInfo(version string) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "diapause_build_info",
		Help: "1, with the version of the agent or the controller.",
	}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	return info
}

// results are the values of the label result of what is counted by result.
var results = []string{"ok", "failed"}

// begin gives counters their series, at 0. An increase from no series to 1 is none to Prometheus.
func begin(values []string, counters ...*prometheus.CounterVec) {
	for _, c := range counters {
		for _, v := range values {
			c.WithLabelValues(v)
		}
	}
}

func result(err error) string {
	if err != nil {
		return results[1]
	}
	return results[0]
}

// Checkpoint implements checkpoint.Metrics.
func (m *metrics) Checkpoint(err error, took time.Duration, stages []snapshot.Stage) {
	m.checkpoints.WithLabelValues(result(err)).Inc()
	m.whole.Observe(took.Seconds())
	if name := budget.Refused(err); name != "" {
		m.beyond.WithLabelValues(name).Inc()
	}
	for _, s := range stages {
		m.stages.WithLabelValues(s.Name).Observe(s.Took.Seconds())
	}
}

// CheckpointMemory sets how many bytes checkpoints hold, and how many checkpoints wait for some.
func (m *metrics) CheckpointMemory(held int64, waiting int) {
	m.held.Set(float64(held))
	m.queued.Set(float64(waiting))
}

// Restore implements restore.Metrics.
func (m *metrics) Restore(err error, took time.Duration, bytes int64) {
	m.restores.WithLabelValues(result(err)).Inc()
	m.loading.Observe(took.Seconds())
	m.loaded.Add(float64(bytes))
}

// Refused implements local.Metrics.
func (m *metrics) Refused() { m.refusals.Inc() }

// Waiting sets how many snapshots wait for their store, by reason.
func (m *metrics) Waiting(n map[string]int) {
	for _, kind := range backlog.Reasons {
		m.waiting.WithLabelValues(kind).Set(float64(n[kind]))
	}
}

// serve serves the metrics until ctx is done. See ServeMetrics.
func (m *metrics) serve(ctx context.Context, addr string) error {
	return ServeMetrics(ctx, addr, m.registry)
}

// ServeMetrics serves metrics on a loopback address until ctx is done. It refuses any other address, because it does
// not authenticate its readers.
func ServeMetrics(ctx context.Context, addr string, from prometheus.Gatherer) error {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return fmt.Errorf("metrics address %q: %w", addr, err)
	}
	if !a.IP.IsLoopback() {
		return fmt.Errorf("metrics address %q: %w: only loopback addresses are served", addr, errkind.ErrInvalid)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{}))
	s := &http.Server{Addr: a.String(), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
