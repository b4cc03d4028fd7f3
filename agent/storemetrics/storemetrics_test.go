package storemetrics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/storagetest"
)

// TestConformance: a backend that is measured keeps its promises.
func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend {
		b, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return New(prometheus.NewRegistry()).Backend(b)
	})
}

// broken fails to read, as a store does that refuses its client.
type broken struct{ storage.Backend }

func (broken) ReadAll(context.Context, string, int64) ([]byte, error) { return nil, storage.ErrDenied }

// TestCounts: operations, bytes and failures are counted, and answers are no failures.
func TestCounts(t *testing.T) {
	d, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	b := New(r).Backend(broken{d})
	ctx := t.Context()
	for _, r := range []io.Reader{bytes.NewReader([]byte("abc")), io.MultiReader(strings.NewReader("abc"))} {
		_ = b.Create(ctx, "a", r, 3) // the second time it exists
	}
	if err := b.Create(ctx, "b", io.MultiReader(strings.NewReader("x"), failing{}), 3); err == nil {
		t.Error("no error of who yields the bytes")
	}
	if _, err := b.Stat(ctx, "none"); !errors.Is(err, storage.ErrNotFound) {
		t.Error(err)
	}
	if _, err := b.ReadAll(ctx, "a", 3); !errors.Is(err, storage.ErrDenied) {
		t.Error(err)
	}
	if err := b.ReadAt(ctx, "a", make([]byte, 2), 0); err != nil {
		t.Error(err)
	}
	stop := errors.New("stop")
	if err := b.List(ctx, "", func(storage.ObjectInfo) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if got := sum(t, r, "diapause_store_bytes_total", "out"); got != 2 {
		t.Errorf("%v bytes came out, want 2", got)
	}
	if got := sum(t, r, "diapause_store_bytes_total", "in"); got < 3 || got > 7 {
		t.Errorf("%v bytes went in, want 3 to 7", got)
	}
	denied := sum(t, r, "diapause_store_errors_total", "read", "denied")
	if all := sum(t, r, "diapause_store_errors_total"); denied != 1 || all != 1 {
		t.Errorf("%v reads were denied, and %v operations failed; want 1", denied, all)
	}
}

// sum returns the sum of all series of a counter that have these values among their labels.
func sum(t *testing.T, r *prometheus.Registry, name string, values ...string) (n float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			has := map[string]bool{}
			for _, l := range m.Label {
				has[l.GetValue()] = true
			}
			if f.GetName() == name && !slices.ContainsFunc(values, func(v string) bool { return !has[v] }) {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// failing is a reader that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
