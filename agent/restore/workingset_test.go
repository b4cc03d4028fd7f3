package restore

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

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

// farSnapshot returns a rig, the reader of a snapshot that is only in a store, and that store's backend.
func farSnapshot(t *testing.T) (*rig, *snapshots.Reader, *busy) {
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
	rs := newRig(t)
	s := &snapshots.Reader{Reader: storage.NewReader(m, rs.stores.Spool(), far), Manifest: m, Far: far}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rs, s, b
}

// TestGuided: a sandbox that is told the working set loads that first. It hardly waits then, but the working set stays.
func TestGuided(t *testing.T) {
	rs, s, _ := farSnapshot(t)
	set := slices.Concat(s.Locate(runsc.PagesFile, 50*snapshots.ChunkSize, snapshots.ChunkSize+1),
		s.Locate(runsc.StateFile, 0, 1), s.Locate(runsc.PagesFile, 7*snapshots.ChunkSize, 1))
	rs.record(s, set)
	rs.Life.Wait()
	r := newRestore(record{Request: "r", Key: s.Manifest.Meta.Key})
	r.reader = s
	src := &source{rs: rs.Restores, restore: r}
	if n, err := src.Size(runsc.WorkingSetFile); n != 0 || err != nil {
		t.Errorf("before the working set is known it has %d bytes, %v", n, err)
	}
	rs.prefetch(t.Context(), s)
	rs.Life.Wait()
	want := runsc.AppendWorkingSet(nil, runsc.Extent{Off: 50 * snapshots.ChunkSize, Size: 2 * snapshots.ChunkSize})
	want = runsc.AppendWorkingSet(want, runsc.Extent{Off: 7 * snapshots.ChunkSize, Size: snapshots.ChunkSize})
	n, err := src.Size(runsc.WorkingSetFile)
	if err != nil || n != int64(len(want)) {
		t.Fatalf("the working set has %d bytes, %v; want %d", n, err, len(want))
	}
	src.Asked(runsc.PagesFile, 50*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Ahead)
	got := make([]byte, n)
	for off := range n / 8 {
		src.Asked(runsc.WorkingSetFile, off*8, 8, gofer.Awaited)
		if err := src.ReadAt(t.Context(), runsc.WorkingSetFile, off*8, got[off*8:off*8+8]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the working set is %x, want %x", got, want)
	}
	if err := src.ReadAt(t.Context(), runsc.WorkingSetFile, n-7, got[:8]); err == nil {
		t.Error("something lies behind the working set")
	}
	src.Asked(runsc.PagesFile, 7*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Ahead)
	src.Asked(runsc.PagesFile, 8*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Ahead)
	src.Asked(runsc.PagesFile, 9*snapshots.ChunkSize, snapshots.ChunkSize, gofer.Awaited)
	wanted := slices.Concat(s.Locate(runsc.PagesFile, 7*snapshots.ChunkSize, 1),
		s.Locate(runsc.PagesFile, 9*snapshots.ChunkSize, 1))
	if got := r.asked.Chunks(); !slices.Equal(got, wanted) {
		t.Errorf("recorded %v, want what is expected or waited for since the sandbox knows the working set, %v", got, wanted)
	}
}

// TestHostileWorkingSet: a working set in the store that names any number of chunks is cut off.
func TestHostileWorkingSet(t *testing.T) {
	rs, s, _ := farSnapshot(t)
	many := slices.Repeat(s.Locate(runsc.PagesFile, 0, 2*snapshots.ChunkSize), workingset.Max)
	if err := s.Far.PutWorkingSet(t.Context(), s.Manifest, many); err != nil {
		t.Fatal(err)
	}
	if n := len(rs.known(t.Context(), s)); n != workingset.Max {
		t.Errorf("%d chunks are known, want %d", n, workingset.Max)
	}
	if n := s.Expected().Chunks(); n != maxExpected {
		t.Errorf("%d chunks are expected, want %d", n, maxExpected)
	}
}

// TestWorkingSet: what a sandbox asked for is recorded once, and prefetched before the next sandbox asks.
func TestWorkingSet(t *testing.T) {
	rs, s, b := farSnapshot(t)
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
	rs.record(s, a.Chunks())
	rs.Life.Wait()
	rs.record(s, a.Chunks()[:1]) // by another restore
	rs.Life.Wait()
	head := s.Locate(runsc.PagesFile, 0, headBytes)
	if got := rs.first(t.Context(), s); !slices.Equal(got, append(head, a.Chunks()...)) {
		t.Errorf("recorded: %v", got)
	}

	rs.prefetch(t.Context(), s)
	rs.Life.Wait()
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
	rs, s, b := farSnapshot(t)
	if got := rs.first(t.Context(), s); len(got) != 80 || got[0].Index != 0 {
		t.Errorf("%v", got)
	}
	s.OnNode = true
	before := b.reads.Load()
	rs.prefetch(t.Context(), s)
	rs.Life.Wait()
	if n := b.reads.Load() - before; n != 0 {
		t.Errorf("%d reads of what is on the node", n)
	}
	near := s.Locate(runsc.PagesFile, 7*snapshots.ChunkSize, 1)
	if err := s.Far.PutWorkingSet(t.Context(), s.Manifest, near); err != nil {
		t.Fatal(err)
	}
	rs.prefetch(t.Context(), s)
	rs.Life.Wait()
	if !s.Has(runsc.PagesFile, 7*snapshots.ChunkSize, 1) || s.Has(runsc.PagesFile, 0, 1) {
		t.Error("of a snapshot on the node not just the working set is decoded")
	}
	other := storagetest.NewDir(t)
	s.Far = other
	rs.record(s, files(t.Context(), s))
	rs.Life.Wait()
	if _, err := other.WorkingSet(t.Context(), s.Manifest); err == nil {
		t.Error("recorded beside no snapshot")
	}
}

// TestPartialWorkingSet: nothing is recorded of a restore that failed or that another agent began. If such a restore
// was recorded all the same, the next complete one replaces its working set.
func TestPartialWorkingSet(t *testing.T) {
	rs, s, _ := farSnapshot(t)
	restored := func(end func(*restore)) []storage.ChunkRef {
		t.Helper()
		rs.Readers.Retain(s) // one more than the restore
		rs.Readers.Retain(s)
		r := newRestore(record{Request: "r", Key: s.Manifest.Meta.Key})
		r.reader, r.serving = s, 1
		r.asked.Add(s.Reader, runsc.PagesFile, 0, 3*snapshots.ChunkSize, workingset.Max)
		rs.all[r.Request] = r
		end(r)
		rs.Life.Wait()
		<-r.ended
		set, err := s.Far.WorkingSet(t.Context(), s.Manifest)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
		return set
	}
	failure := errors.New("it failed")
	ended := func(r *restore, end gofer.End) { (&source{rs: rs.Restores, restore: r}).Ended(end, nil) }
	for name, end := range map[string]func(*restore){
		"a read failed":         func(r *restore) { r.note(failure); ended(r, gofer.Loaded) },
		"the shim says so":      func(r *restore) { rs.Reported(r.Request, r.SandboxID, failure); ended(r, gofer.Lost) },
		"so, without a sidecar": func(r *restore) { r.serving = 0; rs.Reported(r.Request, r.SandboxID, failure) },
		"another agent began":   func(r *restore) { r.revived = true; ended(r, gofer.Loaded) },
	} {
		if set := restored(end); len(set) > 0 {
			t.Errorf("%s: recorded %v", name, set)
		}
	}
	if err := s.Far.PutWorkingSet(t.Context(), s.Manifest, s.Locate(runsc.PagesFile, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if set := restored(func(r *restore) { ended(r, gofer.Loaded) }); len(set) != 3 {
		t.Errorf("recorded: %v", set)
	}
	more := s.Locate(runsc.PagesFile, 9*snapshots.ChunkSize, 1)
	if set := restored(func(r *restore) {
		r.asked.Add(s.Reader, runsc.PagesFile, 9*snapshots.ChunkSize, 1, workingset.Max)
		r.note(failure)
		ended(r, gofer.Loaded)
	}); len(set) != 3 || slices.Contains(set, more[0]) {
		t.Errorf("a restore that failed has changed it to %v", set)
	}
	if set := restored(func(r *restore) {
		r.asked.Add(s.Reader, runsc.PagesFile, 9*snapshots.ChunkSize, 1, workingset.Max)
		ended(r, gofer.Loaded)
	}); len(set) != 4 || !slices.Contains(set, more[0]) {
		t.Errorf("after another restore it is %v, want one more", set)
	}
}
