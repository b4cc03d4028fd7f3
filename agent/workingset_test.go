package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/gofer"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// busy counts what is read of packs.
type busy struct {
	storage.Backend
	reads atomic.Int64
}

func (b *busy) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	b.reads.Add(1)
	return b.Backend.ReadAt(ctx, name, p, off)
}

// farSnapshot returns the restores of an agent, and the reader of a snapshot that is in a store alone.
func farSnapshot(t *testing.T) (*restores, *sharedReader, *busy) {
	t.Helper()
	b := &busy{Backend: storagetest.NewDir(t).Backend()}
	far := storagetest.OpenStore(t, b)
	image := storagetest.Image{
		checkpointfiles.StateFileName: {storagetest.Bytes(1, 1000)},
		checkpointfiles.PagesFileName: nil,
	}
	for i := range 40 {
		image[checkpointfiles.PagesFileName] = append(image[checkpointfiles.PagesFileName],
			storagetest.Bytes(uint64(i+2), ChunkSize))
	}
	m := storagetest.Write(t, far, snapshot.Key{Namespace: "ns", Name: "one"}, nil, image)
	a := &Agent{log: slog.New(slog.NewTextHandler(io.Discard, nil)), life: lifetime.New(t.Context()), spool: storagetest.NewDir(t)}
	s := &sharedReader{Reader: storage.NewReader(m, a.spool, far), manifest: m, far: far}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &restores{Agent: a}, s, b
}

// TestWorkingSet: what a sandbox asked for is recorded once, and fetched before the next one asks.
func TestWorkingSet(t *testing.T) {
	rs, s, b := farSnapshot(t)
	var a asked
	for _, i := range []int64{30, 7, 30, 31} {
		a.add(s.Reader, checkpointfiles.PagesFileName, i*ChunkSize+10, ChunkSize/2)
	}
	a.add(s.Reader, checkpointfiles.PagesFileName, 6*ChunkSize, 2*ChunkSize)
	index := func() (list []uint32) {
		for _, c := range a.chunks() {
			list = append(list, c.Index)
		}
		return list
	}
	if got := index(); !slices.Equal(got, []uint32{30, 7, 31, 6}) {
		t.Fatalf("asked for %v", got)
	}
	rs.record(s, a.chunks())
	rs.life.Wait()
	rs.record(s, a.chunks()[:1]) // by another restore
	rs.life.Wait()
	if got := s.first(t.Context()); !slices.Equal(got, a.chunks()) {
		t.Errorf("recorded: %v", got)
	}

	rs.prefetch(s)
	rs.life.Wait()
	before := b.reads.Load()
	p := make([]byte, ChunkSize)
	for file, off := range map[string]int64{
		checkpointfiles.StateFileName: -1,
		checkpointfiles.PagesFileName: 30 * ChunkSize,
	} {
		if off < 0 {
			off, p = 0, p[:1000]
		}
		if err := s.ReadAt(t.Context(), file, off, [][]byte{p}); err != nil {
			t.Fatal(err)
		}
		p = p[:ChunkSize]
	}
	if n := b.reads.Load() - before; n != 0 {
		t.Errorf("%d reads of what had been prefetched", n)
	}
}

// TestNoWorkingSet: without one the memory is fetched from its beginning on; of a snapshot that is not in
// the store nothing is recorded, and of one that is on the node nothing is fetched.
func TestNoWorkingSet(t *testing.T) {
	rs, s, b := farSnapshot(t)
	if got := s.first(t.Context()); len(got) != 40 || got[0].Index != 0 {
		t.Errorf("%v", got)
	}
	s.onNode = true
	before := b.reads.Load()
	rs.prefetch(s)
	rs.life.Wait()
	if n := b.reads.Load() - before; n != 0 {
		t.Errorf("%d reads of what is on the node", n)
	}
	other := storagetest.NewDir(t)
	s.far = other
	rs.record(s, s.files(t.Context()))
	rs.life.Wait()
	if _, err := other.WorkingSet(t.Context(), s.manifest); err == nil {
		t.Error("recorded beside no snapshot")
	}
}

// TestPartialWorkingSet: of a restore that failed, or that another agent began, nothing is recorded; what
// was recorded of one all the same is replaced.
func TestPartialWorkingSet(t *testing.T) {
	rs, s, _ := farSnapshot(t)
	rs.metrics, rs.all, rs.readers, rs.cfg.RequestDir = newMetrics(), make(map[string]*restore),
		make(map[readerID]*sharedReader), t.TempDir()
	restored := func(end func(*restore)) []storage.ChunkRef {
		t.Helper()
		s.users = 2
		r := &restore{Request: "r", Key: s.manifest.Meta.Key, reader: s, ended: make(chan struct{}), serving: 1}
		r.asked.add(s.Reader, checkpointfiles.PagesFileName, 0, 3*ChunkSize)
		rs.all[r.Request] = r
		end(r)
		rs.life.Wait()
		<-r.ended
		set, err := s.far.WorkingSet(t.Context(), s.manifest)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
		return set
	}
	failure := errors.New("it failed")
	ended := func(r *restore, end gofer.End) { (&source{rs: rs, restore: r}).Ended(end, nil) }
	for name, end := range map[string]func(*restore){
		"a read failed":         func(r *restore) { r.note(failure); ended(r, gofer.Loaded) },
		"the shim says so":      func(r *restore) { rs.reported(r.Request, failure); ended(r, gofer.Lost) },
		"so, without a sidecar": func(r *restore) { r.serving = 0; rs.reported(r.Request, failure) },
		"another agent began":   func(r *restore) { r.revived = true; ended(r, gofer.Loaded) },
	} {
		if set := restored(end); len(set) > 0 {
			t.Errorf("%s: recorded %v", name, set)
		}
	}
	if err := s.far.PutWorkingSet(t.Context(), s.manifest, s.Locate(checkpointfiles.PagesFileName, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if set := restored(func(r *restore) { ended(r, gofer.Loaded) }); len(set) != 3 {
		t.Errorf("recorded: %v", set)
	}
}
