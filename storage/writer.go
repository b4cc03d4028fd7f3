package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/failpoint"
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
	target  target
	parent  *Manifest // of the options; nil: none
	objects *objects
	lineage *lineage
	ahead   *ahead // chunks that Precopy has stored

	// The stages, in the order in which a snapshot passes them.
	queue     *queue
	encoder   *encoder
	packer    *packer
	publisher *publisher

	ctx     context.Context // of the writer's goroutines; its cause is the first failure
	cancel  context.CancelCauseFunc
	workers sync.WaitGroup
	unwatch func() bool
	ended   bool
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
	w := &Writer{
		target: target{key, s.objects.location()}, parent: o.Parent, objects: s.objects, lineage: l, ahead: newAhead(l),
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	printed := o.Fingerprints || l.parent != nil
	w.queue = newQueue(w.ctx, w.target, max(o.Memory/16, MaxChunk), printed)
	w.encoder = &encoder{
		digests: digest.New(l.digestKey), lineage: l, printed: printed,
		chooser: newChooser(cmp.Or(o.Codec, s.writing.codec), s.writing.spool, &s.objects.writes),
	}
	w.packer = newPacker(w.ctx, w.cancel, s.objects, key, l, o, settler(w.queue, w.ahead))
	w.publisher = &publisher{
		key: key, lineage: l, objects: s.objects, manifests: s.manifests, keys: s.dataKeys, claims: s.claims,
		signingKey: s.writing.signingKey,
	}
	w.start(o.Parallelism)
	return w
}

// settler returns what records where a chunk is stored: in its file, or ahead of all files.
func settler(q *queue, a *ahead) func(*placement, Chunk) {
	return func(p *placement, c Chunk) {
		if p.file == nil {
			a.set(p.index, c)
		} else {
			q.settle(p, c)
		}
	}
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

// start starts the workers.
func (w *Writer) start(workers int) {
	w.unwatch = context.AfterFunc(w.ctx, func() {
		w.queue.stir()
		w.packer.stir()
	})
	for range workers {
		w.workers.Go(w.work)
	}
}

// File returns the writer of an image file. For one name it always returns the same writer. The manifest has the files
// in the order of their first calls. The name is 1 to 255 bytes of printable UTF-8.
func (w *Writer) File(name string) *FileWriter { return w.queue.file(name, w.ahead) }

func (w *Writer) work() {
	for {
		j, ok := w.queue.take()
		if !ok {
			return
		}
		if err := w.packer.place(w.encoder.prepare(j)); err != nil {
			w.cancel(err)
			return
		}
		runtime.Gosched() // the goroutines that write packs are mostly idle; when they are not, they must not wait long
	}
}

// drain waits until all chunks that were added are in durable packs.
func (w *Writer) drain() error {
	w.queue.close()
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
	w.queue.drop()
	w.workers.Wait()
	w.packer.finish()
	w.unwatch()
	if w.publisher.state != manifestAbsent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortTimeout)
	defer cancel()
	failpoint.SnapshotBroken.Hit()
	w.packer.remove(ctx, func(PackID) bool { return true })
}
