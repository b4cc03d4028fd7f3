package storage_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

var errInjected = errors.New("injected")

// faulty returns a store with faults at the same place as s.
func faulty(t *testing.T, s *storage.Store, hook fault.Hook) *storage.Store {
	t.Helper()
	var on atomic.Bool
	b := fault.New(s.Backend(), func(op fault.Op, name string) fault.Fault {
		if !on.Load() {
			return fault.Fault{}
		}
		return hook(op, name)
	})
	f := storagetest.OpenStore(t, b)
	on.Store(true)
	return f
}

func write(t *testing.T, s *storage.Store, k storage.Key) error {
	t.Helper()
	w, err := s.NewWriter(t.Context(), k, storage.WriterOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, c := range storagetest.SmallImage(1)["pages.img"] {
		if err := w.File("pages.img").Chunk(c); err != nil {
			return err
		}
	}
	_, err = w.Commit(t.Context(), snapshot.Meta{})
	return err
}

// TestProbeFaults: if the store cannot be read, Probe returns the backend's error.
func TestProbeFaults(t *testing.T) {
	for _, injected := range []error{errInjected, storage.ErrUnavailable, storage.ErrDenied} {
		f := faulty(t, storagetest.NewDir(t), func(fault.Op, string) fault.Fault { return fault.Fault{Before: injected} })
		if err := f.Probe(t.Context()); !errors.Is(err, injected) {
			t.Errorf("error %v, want one that is %q", err, injected)
		}
	}
}

// TestWriterFaults: a writer whose backend fails leaves either the whole snapshot or none. It leaves no pack if it is
// certain that none is needed.
func TestWriterFaults(t *testing.T) {
	isPack := func(name string) bool { return strings.Contains(name, "/packs/") }
	isManifest := func(name string) bool { return strings.HasSuffix(name, "/manifest") }
	for _, test := range []struct {
		name   string
		hit    func(string) bool
		fault  fault.Fault
		exists bool // despite the failure
		packs  int  // left, if the snapshot does not exist
	}{
		{"pack before", isPack, fault.Fault{Before: errInjected}, false, 0},
		{"pack during", isPack, fault.Fault{During: errInjected}, false, 0},
		{"pack after", isPack, fault.Fault{After: errInjected}, false, 0},
		{"pack full", isPack, fault.Fault{Before: storage.ErrNoSpace}, false, 0},
		{"manifest before", isManifest, fault.Fault{Before: errInjected}, false, 1}, // it may still be written
		{"manifest full", isManifest, fault.Fault{Before: storage.ErrNoSpace}, false, 0},
		{"manifest after", isManifest, fault.Fault{After: errInjected}, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := storagetest.NewDir(t)
			f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
				if op == fault.Create && test.hit(name) {
					return test.fault
				}
				return fault.Fault{}
			})
			err := write(t, f, key)
			if has, hasErr := s.Has(t.Context(), key); has != test.exists || has != (err == nil) || hasErr != nil {
				t.Fatalf("exists: %v (%v), commit: %v", has, hasErr, err)
			}
			if test.exists {
				verifyAll(t, s, 1)
				return
			}
			if want := errors.Join(test.fault.Before, test.fault.During, test.fault.After); !errors.Is(want, errInjected) &&
				!errors.Is(err, storage.ErrNoSpace) ||
				errors.Is(want, errInjected) && !errors.Is(err, errInjected) {
				t.Errorf("commit: %v", err)
			}
			if left := objects(t, s, "ns/packs/"); len(left) != test.packs {
				t.Errorf("packs left: %q", left)
			}
			if err := write(t, s, key); err != nil {
				t.Errorf("the key is not free: %v", err)
			}
		})
	}
}

// verifyAll checks that a store has this many snapshots, each of them whole.
func verifyAll(t *testing.T, s *storage.Store, want int) {
	t.Helper()
	n := 0
	err := s.List(t.Context(), "", func(e storage.Listed) error {
		n++
		m, err := s.Manifest(t.Context(), e.Key)
		if err != nil {
			return err
		}
		return s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true})
	})
	if err != nil || n != want {
		t.Fatalf("%d snapshots, want %d: %v", n, want, err)
	}
}

// TestReaderFallsBack: if the first store does not have a chunk undamaged, the chunk comes from the second.
func TestReaderFallsBack(t *testing.T) {
	good := storagetest.NewDir(t)
	image := storagetest.SmallImage(1)
	m := storagetest.Write(t, good, key, nil, image)
	for name, f := range map[string]fault.Fault{
		"absent": {Before: storage.ErrNotFound}, "away": {Before: storage.ErrUnavailable},
		"short": {Short: true}, "corrupt": {Flip: true}, "broken": {During: errInjected},
	} {
		t.Run(name, func(t *testing.T) {
			bad := faulty(t, good, func(op fault.Op, name string) fault.Fault {
				if op == fault.ReadAt {
					return f
				}
				return fault.Fault{}
			})
			storagetest.WantImage(t, m, image, bad, good)
			err := storage.NewReader(m, bad).ReadAt(t.Context(), "pages.img", 0, [][]byte{make([]byte, m.Files[2].Size)})
			if err == nil {
				t.Error("the bad store alone was read")
			}
		})
	}
}

// TestStalledRead: a read without an answer ends with its context, and others who wait for the same chunk still get it.
func TestStalledRead(t *testing.T) {
	s := storagetest.NewDir(t)
	m := storagetest.Write(t, s, key, nil, storagetest.SmallImage(1))
	stall := make(chan struct{})
	var first atomic.Bool
	began := make(chan struct{})
	f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.ReadAt && first.CompareAndSwap(false, true) {
			close(began)
			return fault.Fault{Stall: stall}
		}
		return fault.Fault{}
	})
	r := storage.NewReader(m, f)
	ctx, cancel := context.WithCancel(t.Context())
	stalled, waited := make(chan error, 1), make(chan error, 1)
	read := func(ctx context.Context) error {
		return r.ReadAt(ctx, "pages.img", 4100, [][]byte{make([]byte, 10)})
	}
	go func() { stalled <- read(ctx) }()
	<-began
	go func() { waited <- read(t.Context()) }()
	time.Sleep(10 * time.Millisecond) // most likely the second waits for the first by then
	cancel()
	if err := <-stalled; !errors.Is(err, context.Canceled) {
		t.Errorf("stalled read: %v", err)
	}
	if err := <-waited; err != nil {
		t.Errorf("read beside it: %v", err)
	}
}

// TestReadersShare: neighbouring small reads fetch and decode a chunk once.
func TestReadersShare(t *testing.T) {
	s := storagetest.NewDir(t)
	image := storagetest.SmallImage(1)
	m := storagetest.Write(t, s, key, nil, image)
	var reads atomic.Int64
	f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.ReadAt {
			reads.Add(1)
		}
		return fault.Fault{}
	})
	r := storage.NewReader(m, f)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			if err := r.ReadAt(t.Context(), "pages.img", int64(4096+i*100), [][]byte{make([]byte, 100)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := reads.Load(); n != 1 {
		t.Errorf("%d reads of one chunk", n)
	}
}

// TestReplicateInterrupted: a copy that broke off anywhere leaves no snapshot, and the next copy completes it.
func TestReplicateInterrupted(t *testing.T) {
	src := storagetest.NewDir(t)
	image := storagetest.SmallImage(1)
	one := storagetest.Write(t, src, storage.Key{Namespace: "ns", Name: "zero"}, nil, image)
	image["pages.img"][2] = storagetest.Bytes(99, 4096)
	m := storagetest.Write(t, src, key, one, image) // it has two packs
	dst := storagetest.NewDir(t)
	for allowed := range int64(3) {
		var creates atomic.Int64
		f := faulty(t, dst, func(op fault.Op, name string) fault.Fault {
			if op == fault.Create && creates.Add(1) > allowed {
				return fault.Fault{During: errInjected}
			}
			return fault.Fault{}
		})
		err := storage.Replicate(t.Context(), f, src, key, nil)
		has, hasErr := dst.Has(t.Context(), key)
		if hasErr != nil || has != (err == nil) {
			t.Fatalf("after %d creates: exists %v, %v", allowed, has, err)
		}
	}
	if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
		t.Fatal(err)
	}
	storagetest.WantImage(t, m, image, dst)
}

// TestReplicateCorrupt: a damaged pack is not copied, whatever its size.
func TestReplicateCorrupt(t *testing.T) {
	src, dst := storagetest.NewDir(t), storagetest.NewDir(t)
	storagetest.Write(t, src, key, nil, tinyImage())
	pack := objectPath(src, objects(t, src, "ns/packs/")[0])
	data := content(t, pack)
	data[len(data)-1] ^= 1
	overwrite(t, pack, data)
	if err := storage.Replicate(t.Context(), dst, src, key, nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("replicate: %v", err)
	}
	if left := objects(t, dst, "ns/"); len(left) != 0 {
		t.Errorf("copied: %q", left)
	}
}

// TestReplicateRepairs: a pack of the wrong size in the target is replaced, a lost one is copied again.
func TestReplicateRepairs(t *testing.T) {
	src, dst := storagetest.NewDir(t), storagetest.NewDir(t)
	m := storagetest.Write(t, src, key, nil, tinyImage())
	pack := objects(t, src, "ns/packs/")[0]
	if err := dst.Backend().Create(t.Context(), pack, strings.NewReader("half"), 4); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
			t.Fatal(err)
		}
		storagetest.WantImage(t, m, tinyImage(), dst)
		if err := dst.Backend().Delete(t.Context(), pack); err != nil { // a lost pack that is still named
			t.Fatal(err)
		}
	}
}

// TestParentRemoved: if a parent is gone at the commit of a snapshot that names its packs, the snapshot is not made.
func TestParentRemoved(t *testing.T) {
	s := storagetest.NewDir(t)
	parent := storagetest.Write(t, s, key, nil, storagetest.SmallImage(1))
	child := storage.Key{Namespace: "ns", Name: "child"}
	w, err := s.NewWriter(t.Context(), child, storage.WriterOptions{Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("commit: %v", err)
	}
	verifyAll(t, s, 0)
	// From now on only the parent's digest key is used.
	m := storagetest.Write(t, s, child, parent, storagetest.SmallImage(1))
	if m.DigestKey != parent.DigestKey || m.Packs[0].ID == parent.Packs[0].ID {
		t.Error("names a pack of a parent that is gone")
	}
}

func TestParentOfAnotherNamespace(t *testing.T) {
	s := storagetest.NewDir(t)
	parent := storagetest.Write(t, s, key, nil, tinyImage())
	_, err := s.NewWriter(t.Context(), storage.Key{Namespace: "other", Name: "x"}, storage.WriterOptions{Parent: parent})
	if !errors.Is(err, storage.ErrInvalidName) {
		t.Error(err)
	}
}

func TestCommitCancelled(t *testing.T) {
	s := storagetest.NewDir(t)
	stall := make(chan struct{})
	f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.Create {
			return fault.Fault{Stall: stall}
		}
		return fault.Fault{}
	})
	w, err := f.NewWriter(t.Context(), key, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.File("a").Chunk([]byte("x")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.Commit(ctx, snapshot.Meta{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit: %v", err)
	}
	if left := objects(t, s, "ns/"); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestLongLineage: however long a lineage is, each snapshot names a bounded number of packs.
func TestLongLineage(t *testing.T) {
	s := storagetest.NewDir(t)
	image := storagetest.Image{"pages.img": nil}
	for i := range 100 {
		image["pages.img"] = append(image["pages.img"], storagetest.Bytes(uint64(i), 512))
	}
	var parent *storage.Manifest
	for i := range 100 {
		image["pages.img"][i] = storagetest.Bytes(uint64(1000+i), 512)
		parent = storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "s" + strings.Repeat("x", i)}, parent, image)
		if n := len(parent.Packs); n > 70 {
			t.Fatalf("snapshot %d names %d packs", i, n)
		}
	}
	storagetest.WantImage(t, parent, image, s)
}

func TestFilesInOrder(t *testing.T) {
	s := storagetest.NewDir(t)
	w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	want := []string{"z", "a", "m"}
	for _, name := range append(want, "a", "z") {
		if err := w.File(name).Chunk([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.File("z").Chunk(make([]byte, storage.MaxChunk+1)); err == nil {
		t.Error("a chunk too large was taken")
	}
	m, err := w.Commit(t.Context(), snapshot.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range m.Files {
		got = append(got, f.Name)
	}
	if !slices.Equal(got, want) || len(m.Packs) != 1 {
		t.Errorf("files %q in %d packs", got, len(m.Packs))
	}
}
