package limit_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/limit"
	"diapause.dev/storage/storagetest"
)

func open(t *testing.T, o limit.Options) storage.Backend {
	t.Helper()
	b, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return limit.New(b, o)
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend {
		return open(t, limit.Options{Latency: time.Microsecond, Up: 1 << 30, Down: 1 << 30})
	})
}

func TestSlow(t *testing.T) {
	const size, rate, latency = 1 << 20, 4 << 20, 20 * time.Millisecond
	b := open(t, limit.Options{Up: rate, Down: rate, Latency: latency})
	data := storagetest.Bytes(1, size)
	least := latency + 150*time.Millisecond // 3/4 of the time, since the first 256 KiB pass at once
	for name, do := range map[string]func() error{
		"up":   func() error { return b.Create(t.Context(), "o", bytes.NewReader(data), size) },
		"down": func() error { return b.ReadAt(t.Context(), "p", make([]byte, size), 0) },
	} {
		if name == "down" {
			if err := b.Create(t.Context(), "p", bytes.NewReader(data), size); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < least {
			t.Errorf("%s: %v, want at least %v", name, took, least)
		}
	}
}

func TestCancelled(t *testing.T) {
	b := open(t, limit.Options{Latency: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.Stat(ctx, "o"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
