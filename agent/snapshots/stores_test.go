package snapshots

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"diapause.dev/storage"
)

// TestStoreHangs: a store that accepts connections and never answers is unavailable.
func TestStoreHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", l.Addr().String())
	r := newRemote("gs://bucket", func() { t.Error("opened") })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with little patience: %v", err)
	}
	for range 20 { // only the first call waits
		if _, err := r.Get(t.Context()); !errors.Is(err, storage.ErrUnavailable) ||
			!strings.Contains(err.Error(), "gs://bucket") {
			t.Errorf("got %v", err)
		}
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestStoreComes: if a store cannot be opened, the next call tries again.
func TestStoreComes(t *testing.T) {
	opened := 0
	dir := t.TempDir()
	r := newRemote("dir:"+dir+"/file/store", func() { opened++ })
	r.access.MayMake = true
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context()); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	r.location = "dir:" + dir + "/store"
	for range 2 {
		if s, err := r.Get(t.Context()); err != nil || s == nil {
			t.Errorf("got %v, %v", s, err)
		}
	}
	if err := r.close(); err != nil || opened != 1 {
		t.Errorf("opened %d times; %v", opened, err)
	}
}
