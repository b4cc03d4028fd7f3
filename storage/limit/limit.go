// Package limit wraps a storage.Backend in one that is as slow as a network, for benchmarks and for tests of code that
// waits.
package limit

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/time/rate"

	"diapause.dev/storage"
)

// Options of a wrapper. Zero values mean no limit.
type Options struct {
	Up      int64         // bytes per second of all Create and Replace together
	Down    int64         // bytes per second of all ReadAt together
	Latency time.Duration // before every operation
}

// piece is how many bytes may pass at a time.
const piece = 256 << 10

// Backend is a Backend behind a link with limited bandwidth and latency.
type Backend struct {
	storage.Backend
	latency  time.Duration
	up, down *rate.Limiter
}

var _ storage.Backend = (*Backend)(nil)

// New wraps b.
func New(b storage.Backend, o Options) *Backend {
	return &Backend{Backend: b, latency: o.Latency, up: limiter(o.Up), down: limiter(o.Down)}
}

func limiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return rate.NewLimiter(rate.Inf, piece)
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), piece)
}

// delay waits for the latency.
func (b *Backend) delay(ctx context.Context) error {
	t := time.NewTimer(b.latency)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pass waits until n bytes may pass.
func pass(ctx context.Context, l *rate.Limiter, n int) error {
	for n > 0 {
		now := min(n, piece)
		if err := l.WaitN(ctx, now); err != nil {
			return err
		}
		n -= now
	}
	return nil
}

// Create implements storage.Backend.
func (b *Backend) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := b.delay(ctx); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return b.Backend.Create(ctx, name, &reader{ctx, r, b.up}, size)
}

// reader limits the rate at which the wrapped Backend can read from r.
type reader struct {
	ctx   context.Context
	r     io.Reader
	limit *rate.Limiter
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p[:min(len(p), piece)])
	if waitErr := pass(r.ctx, r.limit, n); waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// Replace implements storage.Backend.
func (b *Backend) Replace(ctx context.Context, name string, data []byte) error {
	if err := b.both(ctx, b.up, len(data)); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return b.Backend.Replace(ctx, name, data)
}

// ReadAt implements storage.Backend.
func (b *Backend) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	if err := b.both(ctx, b.down, len(p)); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return b.Backend.ReadAt(ctx, name, p, off)
}

// ReadAll implements storage.Backend.
func (b *Backend) ReadAll(ctx context.Context, name string, max int64) ([]byte, error) {
	if err := b.delay(ctx); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	data, err := b.Backend.ReadAll(ctx, name, max)
	if waitErr := pass(ctx, b.down, len(data)); waitErr != nil {
		return nil, fmt.Errorf("read %s: %w", name, waitErr)
	}
	return data, err
}

func (b *Backend) both(ctx context.Context, l *rate.Limiter, n int) error {
	if err := b.delay(ctx); err != nil {
		return err
	}
	return pass(ctx, l, n)
}

// Stat implements storage.Backend.
func (b *Backend) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	if err := b.delay(ctx); err != nil {
		return storage.ObjectInfo{}, fmt.Errorf("stat %s: %w", name, err)
	}
	return b.Backend.Stat(ctx, name)
}

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	if err := b.delay(ctx); err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	return b.Backend.List(ctx, prefix, fn)
}

// Delete implements storage.Backend.
func (b *Backend) Delete(ctx context.Context, name string) error {
	if err := b.delay(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return b.Backend.Delete(ctx, name)
}
