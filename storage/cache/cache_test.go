package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/cache"
	"diapause.dev/storage/storagetest"
)

const crashDir = "DIAPAUSE_TEST_CACHE_DIR"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashDir); path != "" {
		fillUntilKilled(path)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, path string, max int64) *cache.Cache {
	t.Helper()
	c, err := cache.Open(path, cache.Options{MaxBytes: max})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func shut(t *testing.T, c *cache.Cache) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// far is a pack in a store that counts fetches.
type far struct {
	data    []byte
	bytes   atomic.Int64
	fetches atomic.Int64
	gate    chan struct{} // nil: open
}

func (f *far) fetch(ctx context.Context, p []byte, off int64) error {
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.fetches.Add(1)
	f.bytes.Add(int64(len(p)))
	copy(p, f.data[off:])
	return nil
}

func (f *far) want(t *testing.T, c *cache.Cache, off, n int) {
	t.Helper()
	p := make([]byte, n)
	if err := c.ReadAt(t.Context(), "ns/packs/1", int64(len(f.data)), p, int64(off), f.fetch); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, f.data[off:off+n]) {
		t.Fatalf("%d+%d: other bytes", off, n)
	}
}

func TestReadAt(t *testing.T) {
	path := t.TempDir()
	c := open(t, path, 64<<20)
	f := &far{data: storagetest.Bytes(1, 10<<20+123)}
	for _, r := range [][2]int{{5, 10}, {0, len(f.data)}, {1<<20 - 1, 2}, {10 << 20, 123}, {3 << 20, 5 << 20}} {
		f.want(t, c, r[0], r[1])
	}
	if f.bytes.Load() != int64(len(f.data)) || f.fetches.Load() != 3 {
		t.Errorf("%d bytes in %d fetches", f.bytes.Load(), f.fetches.Load())
	}
	if _, err := cache.Open(path, cache.Options{}); !errors.Is(err, cache.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	shut(t, c)
	c = open(t, path, 64<<20)
	defer shut(t, c)
	f.want(t, c, 0, len(f.data))
	if f.fetches.Load() != 3 {
		t.Error("fetched again after a restart")
	}
}

func TestShared(t *testing.T) {
	c := open(t, t.TempDir(), 64<<20)
	defer shut(t, c)
	f := &far{data: storagetest.Bytes(1, 6<<20), gate: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		gaveUp <- c.ReadAt(ctx, "ns/packs/1", int64(len(f.data)), make([]byte, 3<<20), 0, f.fetch)
	}()
	time.Sleep(10 * time.Millisecond) // most likely the first by then
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { f.want(t, c, 1<<20, 5<<20) })
	}
	time.Sleep(10 * time.Millisecond)
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who gave up: %v", err)
	}
	close(f.gate)
	wg.Wait()
	if n := f.bytes.Load(); n != 5<<20 {
		t.Errorf("%d bytes fetched", n)
	}
}

func TestBound(t *testing.T) {
	path := t.TempDir()
	c := open(t, path, 4<<20)
	f := &far{data: storagetest.Bytes(1, 10<<20)}
	f.want(t, c, 0, 2<<20)
	f.want(t, c, 5<<20, 1<<20)
	f.want(t, c, 0, 1) // recently used
	f.want(t, c, 8<<20, 1<<20)
	if size := onDisk(t, path); size > 4<<20 || c.Bytes() != size {
		t.Errorf("%d bytes on disk, %d known", size, c.Bytes())
	}
	before := f.fetches.Load()
	f.want(t, c, 0, 1<<20)
	if f.fetches.Load() != before {
		t.Error("the block that was used last is gone")
	}
	shut(t, c)
	c = open(t, path, 1<<20+100)
	defer shut(t, c)
	if size := onDisk(t, path); size > 1<<20+100 || size == 0 {
		t.Errorf("%d bytes after it was opened with another bound", size)
	}
}

func onDisk(t *testing.T, path string) (size int64) {
	t.Helper()
	for _, name := range blocks(t, path) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	return size
}

func blocks(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDamaged: blocks that are damaged, or another object's, are fetched again.
func TestDamaged(t *testing.T) {
	path := t.TempDir()
	f := &far{data: storagetest.Bytes(1, 3<<20)}
	for name, damage := range map[string]func(names []string) error{
		"flipped": func(names []string) error {
			data, err := os.ReadFile(names[0])
			data[1000] ^= 1
			return errors.Join(err, os.WriteFile(names[0], data, 0o600))
		},
		"empty":   func(names []string) error { return os.Truncate(names[1], 0) },
		"cut":     func(names []string) error { return os.Truncate(names[2], 1<<19) },
		"swapped": func(names []string) error { return os.Rename(names[0], names[1]) },
		"gone":    func(names []string) error { return os.Remove(names[2]) },
	} {
		c := open(t, path, 64<<20)
		f.want(t, c, 0, len(f.data))
		before := f.fetches.Load()
		if err := damage(blocks(t, path)); err != nil {
			t.Fatal(err)
		}
		f.want(t, c, 0, len(f.data))
		if f.fetches.Load() == before {
			t.Errorf("%s: not fetched again", name)
		}
		shut(t, c)
	}
}

// TestFull: reads succeed even if the cache cannot write.
func TestFull(t *testing.T) {
	path := t.TempDir()
	c := open(t, path, 64<<20)
	defer shut(t, c)
	f := &far{data: storagetest.Bytes(1, 2<<20)}
	f.want(t, c, 0, 10)
	for _, name := range blocks(t, path) {
		d := filepath.Dir(name)
		if err := errors.Join(os.RemoveAll(d), os.WriteFile(d, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	f.want(t, c, 0, len(f.data))
	f.want(t, c, 0, len(f.data))
}

func fillUntilKilled(path string) {
	c, err := cache.Open(path, cache.Options{MaxBytes: 6 << 20})
	if err != nil {
		panic(err)
	}
	f := &far{data: storagetest.Bytes(1, 10<<20)}
	for i := 0; ; i++ {
		p := make([]byte, 1<<20)
		if err := c.ReadAt(context.Background(), "ns/packs/1", 10<<20, p, int64(i%9)<<20+5, f.fetch); err != nil {
			panic(err)
		}
	}
}

func TestKilled(t *testing.T) {
	path := t.TempDir()
	f := &far{data: storagetest.Bytes(1, 10<<20)}
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+7*i)*time.Millisecond)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+path)
		if out, err := cmd.CombinedOutput(); err == nil || ctx.Err() == nil {
			t.Fatalf("it ended by itself: %v: %s", err, out)
		}
		cancel()
		c := open(t, path, 6<<20)
		if size := onDisk(t, path); size != c.Bytes() || size > 6<<20 {
			t.Errorf("%d bytes on disk, %d known", size, c.Bytes())
		}
		f.want(t, c, 0, len(f.data))
		shut(t, c)
	}
}

// counting is a Backend that counts the bytes read of each pack.
type counting struct {
	storage.Backend
	bytes atomic.Int64
}

func (b *counting) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	b.bytes.Add(int64(len(p)))
	return b.Backend.ReadAt(ctx, name, p, off)
}

// TestEightRestores: eight readers of one snapshot read every byte of the store once. Wrong bytes in the cache reach
// none of them.
func TestEightRestores(t *testing.T) {
	near := storagetest.NewDir(t)
	key := storage.Key{Namespace: "ns", Name: "one"}
	image := storagetest.Image{"pages.img": nil}
	for i := range 100 {
		image["pages.img"] = append(image["pages.img"], storagetest.Bytes(uint64(i), 100<<10))
	}
	m := storagetest.Write(t, near, key, nil, image)
	var total int64
	for _, p := range m.Packs {
		total += p.Size
	}
	path := t.TempDir()
	c := open(t, path, 64<<20)
	defer shut(t, c)
	b := &counting{Backend: near.Backend()}
	s, err := storage.Open(t.Context(), b, storage.Options{Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { storagetest.WantImage(t, m, image, s) })
	}
	wg.Wait()
	if n := b.bytes.Load(); n > total {
		t.Errorf("%d bytes read of %d", n, total)
	}
	poison(t, c, m)
	storagetest.WantImage(t, m, image, s)
	if b.bytes.Load() == total {
		t.Error("the poisoned block was not read again")
	}
}

// poison makes the cache return sound blocks of wrong bytes.
func poison(t *testing.T, c *cache.Cache, m *storage.Manifest) {
	t.Helper()
	name := fmt.Sprintf("ns/packs/%s", m.Packs[0].ID)
	c.Drop(name, 0, 2<<20)
	err := c.ReadAt(t.Context(), name, m.Packs[0].Size, make([]byte, 1000), 0,
		func(_ context.Context, p []byte, _ int64) error {
			copy(p, storagetest.Bytes(99, len(p)))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRetain: Retain removes the blocks of objects that no longer exist, and nothing else.
func TestRetain(t *testing.T) {
	path := t.TempDir()
	c := open(t, path, 1<<30)
	f := &far{data: storagetest.Bytes(1, 3<<20)}
	for _, name := range []string{"ns/packs/a", "ns/packs/b", "ns/packs/c"} {
		if err := c.ReadAt(t.Context(), name, int64(len(f.data)), make([]byte, len(f.data)), 0, f.fetch); err != nil {
			t.Fatal(err)
		}
	}
	all := c.Bytes()
	if n := c.Retain(slices.Values([]string{"ns/packs/b", "ns/packs/z"})); n != 6 || c.Bytes() != all/3 {
		t.Errorf("%d blocks removed, %d bytes of %d left", n, c.Bytes(), all)
	}
	before := f.fetches.Load()
	if err := c.ReadAt(t.Context(), "ns/packs/b", int64(len(f.data)), make([]byte, len(f.data)), 0, f.fetch); err != nil ||
		f.fetches.Load() != before {
		t.Errorf("the one that is retained was fetched again: %v", err)
	}
	shut(t, c)
	c = open(t, path, 1<<30)
	defer shut(t, c)
	if n := c.Bytes(); n != all/3 {
		t.Errorf("%d bytes on the disk, want %d", n, all/3)
	}
}
