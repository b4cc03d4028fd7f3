package storage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// WriterOptions of a Writer.
type WriterOptions struct {
	// Parent is the snapshot before this one in its lineage, in the same namespace. The writer inherits its digest key and
	// its data key, unless one of the two is encrypted and the other is not, or the data key was made under a former key
	// of the namespace. If this store has exactly this parent under
	// the parent's key, the writer does not store its chunks again. Then the parent must stay until Commit has returned,
	// or Commit fails. Of a parent that the store does not trust (Options.Trusted), the writer uses nothing.
	Parent *Manifest

	// Memory bounds in bytes what the writer holds, whatever the snapshot's size: data of packs that the backend has not
	// read yet, chunks in work, and chunks given to Copy. A backend that keeps a copy may hold as much of the packs again.
	// Raw bytes given to Chunk are the caller's. 0 means 256 MiB. The minimum is what a few chunks need. In addition, a
	// writer holds up to 256 bytes for each chunk of the snapshot, including the parent's manifest.
	Memory int64

	// PackSize is the size in bytes past which a pack does not grow; 0 means PackTarget. It is raised to 1 MiB or lowered
	// to 128 MiB if need be.
	PackSize int64

	// Codec is the codec of chunks. CodecAuto means the codec with which the store was opened.
	Codec Codec

	// Fingerprints has fingerprints taken of all chunks even if there is no parent. They go into the manifest. They are
	// needed for Precopy, and save the next snapshot of the lineage most of its work.
	Fingerprints bool

	// Parallelism is how many chunks are digested and compressed at a time; 0 is GOMAXPROCS.
	Parallelism int

	// Progress, if set, is called with the raw bytes handled and the bytes stored for them so far. The calls come one at a
	// time, from the writer's goroutines; they must be short.
	Progress func(raw, stored int64)
}

// Writer makes one snapshot. Its goroutines digest, compress, pack and write chunks while the caller adds more. The
// snapshot exists once Commit has returned nil.
//
// Every Writer must be ended by Commit or Abort, which wait for its goroutines. Abort after a successful Commit does
// nothing, so that it can be deferred. File and Chunk may be called from several goroutines, but the chunks of one file
// only from one at a time, since their order counts. Commit and Abort must be called from one goroutine, with no other
// call running.
type Writer struct {
	store   *Store
	key     Key
	options WriterOptions
	digests *digest.Keyed
	lineage *lineage
	packer  *packer
	chooser *chooser
	ahead   *ahead // chunks that Precopy has stored
	printed bool   // fingerprints are taken of all chunks
	share   int64  // limit for raw bytes in work, and for copied ones: each gets this share of Memory

	ctx     context.Context // of the writer's goroutines; its cause is the first failure
	cancel  context.CancelCauseFunc
	workers sync.WaitGroup
	unwatch func() bool

	mu     sync.Mutex
	wake   sync.Cond // any of the following changed
	files  []*FileWriter
	jobs   []job // waiting for a worker, in order
	closed bool  // no more jobs will come
	next   uint64
	flying int64 // raw bytes that workers have taken and not placed yet
	copied int64 // raw bytes that Copy has copied and that are not placed yet

	ended    bool
	manifest manifestState
}

// manifestState says whether the packs of a failed writer may be removed.
type manifestState int

const (
	manifestAbsent  manifestState = iota // this writer has certainly not written it
	manifestUnknown                      // it may exist, or may still be written
	manifestWritten
)

// job is a chunk for a worker.
type job struct {
	seq   uint64      // place among all chunks of the writer, from 0
	file  *FileWriter // nil: it is stored ahead, and part of no file
	index int         // place in the file, or among the chunks that are stored ahead
	raw   []byte
	copy  *[]byte // the buffer that holds raw; nil: raw is the caller's
}

// FileWriter appends chunks to one image file of a snapshot.
type FileWriter struct {
	w      *Writer
	name   string
	size   int64
	chunks []Chunk
	prints [][format.PrintSize]byte // of the chunks, if they are taken
}

var errAborted = errors.New("writer aborted")

// NewWriter begins a snapshot. If the snapshot exists already, the error is ErrExists. The context governs the writer's
// whole life: when it ends, the writer fails.
func (s *Store) NewWriter(ctx context.Context, key Key, o WriterOptions) (*Writer, error) {
	switch exists, err := s.Has(ctx, key); {
	case err != nil:
		return nil, fmt.Errorf("begin snapshot %s: %w", key, err)
	case exists:
		return nil, fmt.Errorf("begin snapshot %s: %w", key, ErrExists)
	}
	l, err := s.newLineage(ctx, key, o.Parent)
	if err != nil {
		return nil, fmt.Errorf("begin snapshot %s: %w", key, err)
	}
	return s.newWriter(ctx, key, l, o), nil
}

// newWriter begins a snapshot of a lineage.
func (s *Store) newWriter(ctx context.Context, key Key, l *lineage, o WriterOptions) *Writer {
	o = o.withDefaults()
	w := &Writer{store: s, key: key, options: o, lineage: l, digests: digest.New(l.digestKey), ahead: newAhead()}
	w.chooser = newChooser(cmp.Or(o.Codec, s.writing.codec), s.writing.spool, &s.objects.writes)
	w.share = max(o.Memory/16, MaxChunk)
	w.printed = o.Fingerprints || l.parent != nil

	w.wake.L = &w.mu
	w.start(ctx)
	return w
}

const (
	defaultMemory = 256 << 20
	minPackSize   = 1 << 20
	maxPackSize   = 128 << 20
)

func (o WriterOptions) withDefaults() WriterOptions {
	if o.Parallelism <= 0 {
		o.Parallelism = runtime.GOMAXPROCS(0)
	}
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	if o.PackSize <= 0 {
		o.PackSize = PackTarget
	}
	o.PackSize = min(max(o.PackSize, minPackSize), maxPackSize)
	return o
}

// uploads returns how many packs may be under way, and the memory for data of them that the backend has not read. An
// eighth of all memory is for chunks, and a backend may keep a copy of what it has read.
func (o WriterOptions) uploads() (packs int, memory int64) {
	memory = max((o.Memory-o.Memory/8)/2, MaxChunk)
	return 1 + int(memory/o.PackSize), memory
}

func (w *Writer) start(ctx context.Context) {
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.packer = newPacker(w)
	w.unwatch = context.AfterFunc(w.ctx, func() {
		w.mu.Lock()
		w.wake.Broadcast()
		w.mu.Unlock()
		w.packer.mu.Lock()
		w.packer.wake.Broadcast()
		w.packer.mu.Unlock()
	})
	for range w.options.Parallelism {
		w.workers.Go(w.work)
	}
}

func newDigestKey() (key [32]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

// File returns the writer of an image file. For one name it always returns the same writer. The manifest has the files
// in the order of their first calls. The name is 1 to 255 bytes of printable UTF-8.
func (w *Writer) File(name string) *FileWriter {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.files {
		if f.name == name {
			return f
		}
	}
	f := &FileWriter{w: w, name: name}
	w.files = append(w.files, f)
	return f
}

// Expect makes room for this many more chunks, if the caller knows how many will come. Appending them then takes less
// memory. If a snapshot may not have so many, the error is ErrTooManyChunks.
func (f *FileWriter) Expect(chunks int) error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if chunks > MaxChunks-len(f.chunks) {
		return f.w.wrap(fmt.Errorf("%w: %d, at most %d allowed", ErrTooManyChunks, len(f.chunks)+chunks, MaxChunks))
	}
	f.chunks = slices.Grow(f.chunks, chunks)
	if f.w.printed {
		f.prints = slices.Grow(f.prints, chunks)
	}
	return nil
}

// Chunk appends raw, at most MaxChunk bytes, to the file. It only queues raw and does not wait for the work, so raw
// must not change until Commit or Abort has returned. An empty raw adds no chunk. If the writer has failed meanwhile,
// Chunk returns that error.
func (f *FileWriter) Chunk(raw []byte) error {
	if err := f.w.check(raw); err != nil || len(raw) == 0 {
		return err
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.queue(raw, nil)
}

// Copy is like Chunk, for a caller who needs raw back: it appends a copy. It waits while the writer holds as many
// copies as its memory allows.
func (f *FileWriter) Copy(raw []byte) error {
	if err := f.w.check(raw); err != nil || len(raw) == 0 {
		return err
	}
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.copied > 0 && w.copied+int64(len(raw)) > w.share && w.ctx.Err() == nil {
		w.wake.Wait()
	}
	if w.ctx.Err() != nil {
		return w.wrap(context.Cause(w.ctx))
	}
	buffer := getBuffer()
	copy(sized(buffer, len(raw)), raw)
	w.copied += int64(len(raw))
	return f.queue(*buffer, buffer)
}

func (w *Writer) check(raw []byte) error {
	if len(raw) > MaxChunk {
		return fmt.Errorf("snapshot %s: chunk of %d bytes, at most %d allowed", w.key, len(raw), MaxChunk)
	}
	if w.ctx.Err() != nil {
		return w.wrap(context.Cause(w.ctx))
	}
	return nil
}

// queue appends a job. The caller holds f.w.mu.
func (f *FileWriter) queue(raw []byte, copy *[]byte) error {
	w := f.w
	if w.closed {
		return w.wrap(errors.New("chunk after the end"))
	}
	w.jobs = append(w.jobs, job{seq: w.next, file: f, index: len(f.chunks), raw: raw, copy: copy})
	w.next++
	f.chunks = append(f.chunks, Chunk{Raw: uint32(len(raw))})
	if w.printed {
		f.prints = append(f.prints, [format.PrintSize]byte{})
	}
	f.size += int64(len(raw))
	w.wake.Broadcast()
	return nil
}

func (w *Writer) wrap(err error) error {
	return fmt.Errorf("write snapshot %s to %s: %w", w.key, w.store.objects.backend.Location(), err)
}

// take waits for a job. It returns false if no more will come.
func (w *Writer) take() (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.ctx.Err() == nil && (len(w.jobs) == 0 && !w.closed || len(w.jobs) > 0 && w.crowded()) {
		w.wake.Wait()
	}
	if len(w.jobs) == 0 || w.ctx.Err() != nil {
		return job{}, false
	}
	j := w.jobs[0]
	w.jobs[0] = job{} // releases the raw bytes
	w.jobs = w.jobs[1:]
	w.flying += int64(len(j.raw))
	return j, true
}

// crowded reports whether chunks that were taken earlier must be placed first. They will be: if any chunk is taken, so
// is the one whose turn it is. The caller holds w.mu.
func (w *Writer) crowded() bool {
	return w.flying > 0 && w.flying+int64(len(w.jobs[0].raw)) > w.share
}

func (w *Writer) work() {
	for {
		j, ok := w.take()
		if !ok {
			return
		}
		if err := w.packer.place(w.prepare(j)); err != nil {
			w.cancel(err)
			return
		}
		runtime.Gosched() // the goroutines that write packs are mostly idle; when they are not, they must not wait long
	}
}

// prepare does all work on a chunk that needs no order. If there is a parent, or chunks were stored ahead, it first
// looks whether the chunk is stored already. Otherwise it computes the digest after compressing, because compressing
// brings the chunk into the processor's cache faster, and a digest of cached data costs less.
func (w *Writer) prepare(j job) placement {
	p := placement{job: j, chunk: Chunk{Raw: uint32(len(j.raw))}}
	if p.placed = isZero(j.raw); p.placed {
		if w.printed {
			p.print = w.digests.Fingerprint(j.raw)
		}
		return p
	}
	if !w.printed {
		w.compress(&p)
		p.chunk.Digest = w.digests.Sum(j.raw)
		return p
	}
	if p.placed = w.reuse(&p); !p.placed {
		w.compress(&p)
	}
	return p
}

// reuse looks for a chunk among those that are stored already: first by its fingerprint, then, if that is not known, by
// its digest.
func (w *Writer) reuse(p *placement) bool {
	p.print = w.digests.Fingerprint(p.raw)
	c, ok := w.recognised(&p.print, p.chunk.Raw)
	if !ok {
		p.chunk.Digest = w.digests.Sum(p.raw)
		c, ok = w.lineage.find(p.chunk.Digest, p.chunk.Raw)
	}
	if ok {
		p.chunk = c
	}
	return ok
}

// recognised returns the parent's chunk with a fingerprint.
func (w *Writer) recognised(print *[format.PrintSize]byte, raw uint32) (c Chunk, ok bool) {
	n, ok := w.lineage.recognise(print, raw)
	if ok {
		c = w.lineage.known.chunk(n)
	}
	return c, ok
}

// compress computes the bytes to store for a chunk.
func (w *Writer) compress(p *placement) {
	p.buffer = getBuffer()
	sized(p.buffer, s2.MaxEncodedLen(len(p.raw))+format.SealSize)
	began := time.Now()
	codec := w.chooser.choose()
	p.chunk.Codec, p.stored = format.Compress(codec, *p.buffer, p.raw)
	w.chooser.learn(codec, len(p.raw), len(p.stored), time.Since(began))
	w.own(p)
}

// own makes sure that a chunk's stored bytes do not change until the backend has read them. Raw bytes stay where they
// are, unless they must be encrypted, or are in a buffer that the writer or the caller of Precopy wants back.
func (w *Writer) own(p *placement) {
	switch {
	case p.chunk.Codec != CodecNone:
	case w.lineage.lock != nil || p.copy != nil || p.file == nil:
		p.stored = append((*p.buffer)[:0], p.raw...)
	default:
		putBuffer(p.buffer)
		p.buffer = nil
	}
}

// settle records where a chunk is stored, and releases what the chunk needed.
func (w *Writer) settle(p *placement, c Chunk) {
	if p.file == nil {
		w.ahead.set(p.index, c)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.file.chunks[p.index] = c
	if w.printed {
		p.file.prints[p.index] = p.print
	}
	w.flying -= int64(len(p.raw))
	if p.copy != nil {
		w.copied -= int64(len(p.raw))
		putBuffer(p.copy)
	}
	w.wake.Broadcast()
}

// drain waits until all chunks that were added are in durable packs.
func (w *Writer) drain() error {
	w.mu.Lock()
	w.closed = true
	w.wake.Broadcast()
	w.mu.Unlock()
	w.workers.Wait()
	w.packer.finish()
	return context.Cause(w.ctx)
}

// abortTimeout bounds the removal of packs that nobody will need.
const abortTimeout = 30 * time.Second

// Abort gives up the snapshot: it stops the writer's goroutines, waits for them, and removes what was written, as far
// as possible. If the manifest may exist, the packs stay. After a successful Commit it does nothing.
func (w *Writer) Abort() {
	if w.ended {
		return
	}
	w.ended = true
	w.cancel(errAborted)
	w.mu.Lock()
	w.closed, w.jobs = true, nil
	w.mu.Unlock()
	w.workers.Wait()
	w.packer.finish()
	w.unwatch()
	if w.manifest != manifestAbsent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortTimeout)
	defer cancel()
	failpoint.SnapshotBroken.Hit()
	w.packer.remove(ctx, func(PackID) bool { return true })
}
