package storage

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	"diapause.dev/storage/format"
)

// Place says where a chunk is that a Writer has stored ahead, or has recognised. It means something to that Writer
// only.
type Place int64

// ofParent is set in the places of chunks that the parent has. The rest is the number in the list that it is from.
const ofParent Place = 1 << 40

// ahead lists chunks that are stored before a file has them, and finds them by their fingerprints. Safe for concurrent
// use.
type ahead struct {
	lineage *lineage

	mu     sync.RWMutex
	seed   maphash.Seed
	chunks []Chunk // of length 0 until they are placed
	prints [][format.PrintSize]byte
	index  index
}

func newAhead(l *lineage) *ahead { return &ahead{lineage: l, seed: maphash.MakeSeed()} }

// find returns the number of the chunk with a fingerprint. The caller holds a.mu.
func (a *ahead) find(print *[format.PrintSize]byte) (number uint32, ok bool) {
	return a.index.find(maphash.Bytes(a.seed, print[:]), func(n uint32) bool { return a.prints[n] == *print })
}

// number returns the number of the chunk with a fingerprint, and whether it is new.
func (a *ahead) number(print [format.PrintSize]byte) (number int, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n, ok := a.find(&print); ok {
		return int(n), false
	}
	number = len(a.chunks)
	a.chunks, a.prints = append(a.chunks, Chunk{}), append(a.prints, print)
	a.index.add(maphash.Bytes(a.seed, print[:]), uint32(number), func(n uint32) uint64 {
		return maphash.Bytes(a.seed, a.prints[n][:])
	})
	return number, true
}

func (a *ahead) set(number int, c Chunk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.chunks[number] = c
}

// at returns the chunk at a place, of the parent or stored ahead, and its fingerprint.
func (a *ahead) at(place Place) (c Chunk, print [format.PrintSize]byte, err error) {
	n := place &^ ofParent
	if place&ofParent != 0 && a.lineage.known != nil && n < Place(a.lineage.known.len()) {
		f, i := a.lineage.known.at(uint32(n))
		return a.lineage.known.chunk(uint32(n)), f.Prints[i], nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if place < 0 || place >= Place(len(a.chunks)) || a.chunks[place].Raw == 0 {
		return c, print, fmt.Errorf("no chunk is known at %d", place)
	}
	return a.chunks[place], a.prints[place], nil
}

// Precopy stores a chunk ahead, of at least one byte: it becomes part of a file if Known adds it. It does the work in
// the caller's goroutine, and waits while the writer's memory is full. When it returns, raw may change. If nobody adds
// the chunk, its bytes still take room in the snapshot's packs; packs without any that is added are removed by Commit.
// Precopy may be called from several goroutines. It needs WriterOptions.Fingerprints.
func (w *Writer) Precopy(raw []byte) (Place, error) {
	if err := w.queue.check(raw); err != nil {
		return 0, err
	}
	if place, ok := w.Recognise(raw); ok {
		return place, nil
	}
	number, isNew := w.ahead.number(w.encoder.digests.Fingerprint(raw))
	if !isNew {
		return Place(number), nil
	}
	seq, err := w.queue.number()
	if err != nil {
		return 0, err
	}
	if err := w.packer.place(w.encoder.prepare(job{seq: seq, raw: raw, index: number})); err != nil {
		w.cancel(err)
		return 0, w.target.wrap(err)
	}
	return Place(number), nil
}

// Recognise looks for a chunk of the parent by its fingerprint. It reads nothing. It may be called from several
// goroutines.
func (w *Writer) Recognise(raw []byte) (place Place, ok bool) {
	print := w.encoder.digests.Fingerprint(raw)
	n, ok := w.lineage.recognise(&print, uint32(len(raw)))
	return ofParent | Place(n), ok
}

// Flush waits until all chunks that were stored ahead are in durable packs. No chunk may be added meanwhile.
func (w *Writer) Flush() error {
	w.packer.finish()
	if w.ctx.Err() != nil {
		return w.target.wrap(context.Cause(w.ctx))
	}
	return nil
}

// AheadFile is the name of the file that a Writer's Reader has.
const AheadFile = "ahead"

// Reader returns a reader of the chunks at some places, as a file named AheadFile, in this order. Flush must have
// returned. The reader may be used until Commit or Abort.
func (w *Writer) Reader(places []Place) (*Reader, error) {
	m := &Manifest{DigestKey: w.lineage.digestKey, DataKey: w.lineage.lock}
	m.Meta.Key = w.target.key
	m.Packs = append(w.lineage.packs[:len(w.lineage.packs):len(w.lineage.packs)], w.packer.written()...)
	f := File{Name: AheadFile, Chunks: make([]Chunk, len(places))}
	for i, place := range places {
		c, _, err := w.ahead.at(place)
		if err != nil {
			return nil, w.target.wrap(err)
		}
		f.Chunks[i] = c
		f.Size += int64(c.Raw)
	}
	m.Files = []File{f}
	return ReaderOptions{}.newReader(m, []*objects{w.objects}), nil
}

// prune removes the packs of which no chunk was added to a file. The manifest names none of them. What cannot be
// removed is left to the next sweep.
func (w *Writer) prune(ctx context.Context, m *Manifest) {
	named := make(map[PackID]bool, len(m.Packs))
	for _, p := range m.Packs {
		named[p.ID] = true
	}
	w.packer.remove(ctx, func(id PackID) bool { return !named[id] })
}
