package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
)

// Place says where a chunk is that a Writer has recognised. It means something to that Writer only.
type Place int64

// ofParent is set in the places of chunks that the parent has. The rest is the number in the list that it is from.
const ofParent Place = 1 << 40

// ahead lists chunks that were stored before a file had them, and finds them by their fingerprints.
type ahead struct {
	mu     sync.RWMutex
	seed   maphash.Seed
	chunks []Chunk
	prints [][printSize]byte
	index  index
}

func newAhead() *ahead { return &ahead{seed: maphash.MakeSeed()} }

func (a *ahead) find(print *[printSize]byte) (number uint32, ok bool) {
	return a.index.find(maphash.Bytes(a.seed, print[:]), func(n uint32) bool { return a.prints[n] == *print })
}

func (a *ahead) add(c Chunk, print [printSize]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.find(&print); ok {
		return
	}
	a.chunks, a.prints = append(a.chunks, c), append(a.prints, print)
	a.index.add(maphash.Bytes(a.seed, print[:]), uint32(len(a.chunks)-1), func(n uint32) uint64 {
		return maphash.Bytes(a.seed, a.prints[n][:])
	})
}

// Precopy stores a chunk ahead: it becomes part of a file if Known adds it. It does the work in the caller's goroutine,
// and waits while the writer's memory is full. When it returns, raw may change, and Recognise knows the chunk. If
// nobody adds a chunk, its bytes still take room in the snapshot's packs; packs without any that is added are removed by
// Commit. Precopy may be called from several goroutines. It returns the bytes that it had to store anew. It needs
// WriterOptions.Fingerprints.
func (w *Writer) Precopy(raw []byte) (stored int64, err error) {
	if err := w.check(raw); err != nil || len(raw) == 0 {
		return 0, err
	}
	print := w.digests.Fingerprint(raw)
	if _, ok := w.recognise(&print, uint32(len(raw))); ok {
		return 0, nil
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return 0, w.wrap(errors.New("chunk after the end"))
	}
	j := job{seq: w.next, raw: raw}
	w.next++
	w.mu.Unlock()
	p := w.prepare(j)
	if !p.placed {
		stored = int64(len(p.stored))
	}
	if err := w.packer.place(p); err != nil {
		w.cancel(err)
		return 0, w.wrap(err)
	}
	return stored, nil
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

// Recognise looks for a chunk among those that were stored ahead, and those of the parent: the one whose bytes are
// parts, one after the other. It compares fingerprints, and reads nothing. It may be called from several goroutines. It
// needs WriterOptions.Fingerprints.
func (w *Writer) Recognise(parts ...[]byte) (place Place, ok bool) {
	var size int
	for _, p := range parts {
		size += len(p)
	}
	print := w.digests.Fingerprint(parts...)
	return w.recognise(&print, uint32(size))
}

func (w *Writer) recognise(print *[printSize]byte, raw uint32) (place Place, ok bool) {
	w.ahead.mu.RLock()
	defer w.ahead.mu.RUnlock()
	if n, ok := w.ahead.find(print); ok {
		return Place(n), w.ahead.chunks[n].Raw == raw
	}
	n, ok := w.lineage.recognise(print, raw)
	return ofParent | Place(n), ok
}

// stored returns the chunk that was stored ahead, or is the parent's, with this fingerprint and length.
func (w *Writer) stored(print *[printSize]byte, raw uint32) (c Chunk, ok bool) {
	place, ok := w.recognise(print, raw)
	if !ok {
		return c, false
	}
	c, _, err := w.at(place)
	return c, err == nil
}

// Known appends the chunk at a place to the file.
func (f *FileWriter) Known(at Place) error {
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.wrap(errors.New("chunk after the end"))
	}
	c, print, err := w.at(at)
	if err != nil {
		return w.wrap(err)
	}
	f.chunks, f.prints = append(f.chunks, c), append(f.prints, print)
	f.size += int64(c.Raw)
	return nil
}

// at returns the chunk at a place, and its fingerprint.
func (w *Writer) at(place Place) (c Chunk, print [printSize]byte, err error) {
	n := place &^ ofParent
	if place&ofParent != 0 && w.lineage.known != nil && n < Place(w.lineage.known.len()) {
		f, i := w.lineage.known.at(uint32(n))
		return w.lineage.known.chunk(uint32(n)), f.prints[i], nil
	}
	w.ahead.mu.RLock()
	defer w.ahead.mu.RUnlock()
	if place < 0 || place >= Place(len(w.ahead.chunks)) {
		return c, print, fmt.Errorf("no chunk is known at %d", place)
	}
	return w.ahead.chunks[place], w.ahead.prints[place], nil
}
