// Package storemetrics counts what is asked of stores, and how long they take.
package storemetrics

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"diapause.dev/agent/backlog"
	"diapause.dev/storage"
)

// Metrics are the metrics of all stores of a process. Its methods may be called concurrently.
type Metrics struct {
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec
	bytes  *prometheus.CounterVec
}

// operations are the values of the label operation.
var operations = []string{"create", "replace", "read", "stat", "list", "delete"}

// New returns metrics that are registered.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "diapause_store_seconds",
			Help: "Time of an operation of a store; a create has the time of who yields the bytes, too.",
			// From a millisecond to a minute. There are many series, so the buckets are few.
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"store", "operation"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_store_errors_total",
			Help: "Operations of a store that failed, by the reason.",
		}, []string{"store", "operation", "reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diapause_store_bytes_total",
			Help: "Bytes that a store has taken in and given out.",
		}, []string{"store", "direction"}),
	}
	r.MustRegister(m.took, m.failed, m.bytes)
	return m
}

// Backend returns a backend that measures b.
func (m *Metrics) Backend(b storage.Backend) storage.Backend {
	where := b.Location()
	took := make(map[string]prometheus.Observer, len(operations))
	for _, operation := range operations {
		took[operation] = m.took.WithLabelValues(where, operation)
		for _, reason := range backlog.Reasons {
			m.failed.WithLabelValues(where, operation, reason)
		}
	}
	return &measured{b, m, where, took, m.bytes.WithLabelValues(where, "in"), m.bytes.WithLabelValues(where, "out")}
}

// measured is a backend that is measured.
type measured struct {
	storage.Backend
	m       *Metrics
	where   string
	took    map[string]prometheus.Observer // by operation
	in, out prometheus.Counter             // bytes
}

// end counts an operation that took so long. That an object exists, or does not, is an answer and no failure. Nor is
// the end of who asked.
func (b *measured) end(ctx context.Context, operation string, took time.Duration, err error) {
	b.took[operation].Observe(took.Seconds())
	for _, answer := range []error{storage.ErrExists, storage.ErrNotFound, storage.ErrTooLarge, storage.ErrTruncated} {
		if errors.Is(err, answer) {
			return
		}
	}
	if err != nil && ctx.Err() == nil {
		b.m.failed.WithLabelValues(b.where, operation, backlog.Reason(err)).Inc()
	}
}

// Create implements storage.Backend.
func (b *measured) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	began := time.Now()
	c := &counted{r: r}
	from := io.Reader(c)
	if _, ok := r.(io.WriterTo); ok {
		from = countedTo{c}
	}
	err := b.Backend.Create(ctx, name, from, size)
	if c.failed == nil { // else it is not the store that failed
		b.end(ctx, "create", time.Since(began), err)
	}
	b.in.Add(float64(c.n))
	return err
}

// Replace implements storage.Backend.
func (b *measured) Replace(ctx context.Context, name string, data []byte) error {
	began := time.Now()
	err := b.Backend.Replace(ctx, name, data)
	b.end(ctx, "replace", time.Since(began), err)
	if err == nil {
		b.in.Add(float64(len(data)))
	}
	return err
}

// ReadAt implements storage.Backend.
func (b *measured) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	began := time.Now()
	err := b.Backend.ReadAt(ctx, name, p, off)
	b.end(ctx, "read", time.Since(began), err)
	if err == nil {
		b.out.Add(float64(len(p)))
	}
	return err
}

// ReadAll implements storage.Backend.
func (b *measured) ReadAll(ctx context.Context, name string, most int64) ([]byte, error) {
	began := time.Now()
	data, err := b.Backend.ReadAll(ctx, name, most)
	b.end(ctx, "read", time.Since(began), err)
	b.out.Add(float64(len(data)))
	return data, err
}

// Stat implements storage.Backend.
func (b *measured) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	began := time.Now()
	info, err := b.Backend.Stat(ctx, name)
	b.end(ctx, "stat", time.Since(began), err)
	return info, err
}

// List implements storage.Backend. What fn takes does not count, and its errors are not the store's.
func (b *measured) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	began := time.Now()
	var within time.Duration
	var failed error
	err := b.Backend.List(ctx, prefix, func(o storage.ObjectInfo) error {
		called := time.Now()
		failed = fn(o)
		within += time.Since(called)
		return failed
	})
	theirs := err
	if failed != nil {
		theirs = nil
	}
	b.end(ctx, "list", time.Since(began)-within, theirs)
	return err
}

// Delete implements storage.Backend.
func (b *measured) Delete(ctx context.Context, name string) error {
	began := time.Now()
	err := b.Backend.Delete(ctx, name)
	b.end(ctx, "delete", time.Since(began), err)
	return err
}

// counted counts what is read, and keeps the error by which reading ended.
type counted struct {
	r      io.Reader
	n      int64
	failed error
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed = err
	}
	return n, err
}

// countedTo is a counted reader that writes by itself, which some backends prefer.
type countedTo struct{ *counted }

// WriteTo implements io.WriterTo.
func (c countedTo) WriteTo(w io.Writer) (int64, error) {
	to := &writer{Writer: w}
	n, err := c.r.(io.WriterTo).WriteTo(to)
	c.n += n
	if !to.failed {
		c.failed = err
	}
	return n, err
}

// writer keeps whether a write has failed.
type writer struct {
	io.Writer
	failed bool
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.failed = w.failed || err != nil
	return n, err
}
