package loading

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/workingset"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// busy is a backend that counts reads.
type busy struct {
	storage.Backend
	reads atomic.Int64
}

func (b *busy) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	b.reads.Add(1)
	return b.Backend.ReadAt(ctx, name, p, off)
}

// newLoader returns the loader of a node, and its stores.
func newLoader(t *testing.T) (*Loader, *snapshots.Stores) {
	t.Helper()
	dir := t.TempDir()
	stores, err := snapshots.Open(t.Context(), snapshots.Options{
		StateDir: dir, Store: "dir:" + dir + "/store", Opened: func() {}, Logger: journaltest.Quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	life := lifetime.New(t.Context())
	t.Cleanup(func() {
		life.End(errkind.ErrStopping)
		life.Wait()
		if err := stores.Close(); err != nil {
			t.Error(err)
		}
	})
	readers := snapshots.OpenReaders(stores, life)
	return New(Config{Readers: readers, Life: life, Logger: journaltest.Quiet}), stores
}

// farSnapshot returns a loader, the reader of a snapshot that is only in a store, and that store's backend.
func farSnapshot(t *testing.T) (*Loader, *snapshots.Reader, *busy) {
	t.Helper()
	b := &busy{Backend: storagetest.NewDir(t).Backend()}
	far := storagetest.OpenStore(t, b)
	image := storagetest.Image{
		runsc.StateFile: {storagetest.Bytes(1, 1000)},
		runsc.PagesFile: nil,
	}
	for i := range 80 {
		image[runsc.PagesFile] = append(image[runsc.PagesFile], storagetest.Bytes(uint64(i+2), snapshots.ChunkSize))
	}
	m := storagetest.Write(t, far, snapshot.Key{Namespace: "ns", Name: "one"}, nil, image)
	l, stores := newLoader(t)
	s := &snapshots.Reader{Reader: storage.NewReader(m, stores.Spool(), far), Manifest: m, Far: far}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l, s, b
}

// TestGuided: a sandbox that is told the working set loads that first. It hardly waits then, but the working set stays.
func TestGuided(t *testing.T) {
	l, s, _ := farSnapshot(t)
	set := slices.Concat(s.Locate(runsc.PagesFile, 50*snapshots.ChunkSize, snapshots.ChunkSize+1),
		s.Locate(runsc.StateFile, 0, 1), s.Locate(runsc.PagesFile, 7*snapshots.ChunkSize, 1))
	l.record(s, set)
	l.Life.Wait()
	src := l.Image(Options{Request: "r", ID: snapshots.ID{Key: s.Manifest.Meta.Key}}, s)
	if n, err := src.Size(t.Context(), runsc.WorkingSetFile); n != 0 || err != nil {
		t.Errorf("before the working set is known it has %d bytes, %v", n, err)
	}
	l.prefetch(t.Context(), s)
	l.Life.Wait()
	want := runsc.AppendWorkingSet(nil, runsc.Extent{Off: 50 * snapshots.ChunkSize, Size: 2 * snapshots.ChunkSize})
	want = runsc.AppendWorkingSet(want, runsc.Extent{Off: 7 * snapshots.ChunkSize, Size: snapshots.ChunkSize})
	n, err := src.Size(t.Context(), runsc.WorkingSetFile)
	if err != nil || n != int64(len(want)) {
		t.Fatalf("the working set has %d bytes, %v; want %d", n, err, len(want))
	}
	src.Asked(runsc.PagesFile, 50*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Ahead)
	got := make([]byte, n)
	for off := range n / 8 {
		src.Asked(runsc.WorkingSetFile, off*8, 8, gofer.Awaited)
		if err := src.ReadWorkingSet(off*8, got[off*8:off*8+8]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the working set is %x, want %x", got, want)
	}
	if err := src.ReadWorkingSet(n-7, got[:8]); err == nil {
		t.Error("something lies behind the working set")
	}
	src.Asked(runsc.PagesFile, 7*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Ahead)
	src.Asked(runsc.PagesFile, 8*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Ahead)
	src.Asked(runsc.PagesFile, 9*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Awaited)
	wanted := slices.Concat(s.Locate(runsc.PagesFile, 7*snapshots.ChunkSize, 1),
		s.Locate(runsc.PagesFile, 9*snapshots.ChunkSize, 1))
	if got := src.asked.Chunks(); !slices.Equal(got, wanted) {
		t.Errorf("recorded %v, want what is expected or waited for since the sandbox knows the working set, %v", got, wanted)
	}
}

// TestHostileWorkingSet: a working set in the store that names any number of chunks is cut off.
func TestHostileWorkingSet(t *testing.T) {
	l, s, _ := farSnapshot(t)
	many := slices.Repeat(s.Locate(runsc.PagesFile, 0, 2*snapshots.ChunkSize), workingset.Max)
	if err := s.Far.PutWorkingSet(t.Context(), s.Manifest, many); err != nil {
		t.Fatal(err)
	}
	if n := len(l.known(t.Context(), s)); n != workingset.Max {
		t.Errorf("%d chunks are known, want %d", n, workingset.Max)
	}
	if n := s.Expected().Chunks(); n != maxExpected {
		t.Errorf("%d chunks are expected, want %d", n, maxExpected)
	}
}

// TestWorkingSet: what a sandbox asked for is recorded once, and prefetched before the next sandbox asks.
func TestWorkingSet(t *testing.T) {
	l, s, b := farSnapshot(t)
	var a workingset.Asked
	for _, i := range []int64{70, 57, 70, 71} {
		a.Add(s.Reader, runsc.PagesFile, i*snapshots.ChunkSize+10, snapshots.ChunkSize/2, workingset.Max)
	}
	a.Add(s.Reader, runsc.PagesFile, 56*snapshots.ChunkSize, 2*snapshots.ChunkSize, workingset.Max)
	index := func() (list []uint32) {
		for _, c := range a.Chunks() {
			list = append(list, c.Index)
		}
		return list
	}
	if got := index(); !slices.Equal(got, []uint32{70, 57, 71, 56}) {
		t.Fatalf("asked for %v", got)
	}
	l.record(s, a.Chunks())
	l.Life.Wait()
	l.record(s, a.Chunks()[:1]) // by another restore
	l.Life.Wait()
	head := s.Locate(runsc.PagesFile, 0, headBytes)
	if got := l.first(t.Context(), s); !slices.Equal(got, append(head, a.Chunks()...)) {
		t.Errorf("recorded: %v", got)
	}

	l.prefetch(t.Context(), s)
	l.Life.Wait()
	before := b.reads.Load()
	p := make([]byte, snapshots.ChunkSize)
	for file, off := range map[string]int64{
		runsc.StateFile: -1,
		runsc.PagesFile: 70 * snapshots.ChunkSize,
	} {
		if off < 0 {
			off, p = 0, p[:1000]
		}
		if err := s.ReadAt(t.Context(), file, off, [][]byte{p}); err != nil {
			t.Fatal(err)
		}
		p = p[:snapshots.ChunkSize]
	}
	if n := b.reads.Load() - before; n != 0 {
		t.Errorf("%d reads of what had been prefetched", n)
	}
}

// TestNoWorkingSet: without a working set, the memory is prefetched from its beginning on. If the snapshot is not in
// the store, nothing is recorded. If the snapshot is on the node, only a working set is prefetched.
func TestNoWorkingSet(t *testing.T) {
	l, s, b := farSnapshot(t)
	if got := l.first(t.Context(), s); len(got) != 80 || got[0].Index != 0 {
		t.Errorf("%v", got)
	}
	s.OnNode = true
	before := b.reads.Load()
	l.prefetch(t.Context(), s)
	l.Life.Wait()
	if n := b.reads.Load() - before; n != 0 {
		t.Errorf("%d reads of what is on the node", n)
	}
	near := s.Locate(runsc.PagesFile, 7*snapshots.ChunkSize, 1)
	if err := s.Far.PutWorkingSet(t.Context(), s.Manifest, near); err != nil {
		t.Fatal(err)
	}
	l.prefetch(t.Context(), s)
	l.Life.Wait()
	if !s.Has(runsc.PagesFile, 7*snapshots.ChunkSize, 1) || s.Has(runsc.PagesFile, 0, 1) {
		t.Error("of a snapshot on the node not just the working set is decoded")
	}
	other := storagetest.NewDir(t)
	s.Far = other
	l.record(s, files(t.Context(), s))
	l.Life.Wait()
	if _, err := other.WorkingSet(t.Context(), s.Manifest); err == nil {
		t.Error("recorded beside no snapshot")
	}
}
