package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync/atomic"

	"diapause.dev/storage/format"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// ReaderOptions of a Reader.
type ReaderOptions struct {
	// CacheBytes bounds the decoded chunks that are kept for further reads; 0 is 64 MiB.
	CacheBytes int64
	// Pool, if set, bounds what this Reader and others keep together.
	Pool *Pool
}

const defaultCache = 64 << 20

// Reader reads the files of a snapshot, chunk by chunk. It takes each chunk from a store that has it undamaged. It is
// safe for concurrent use.
type Reader struct {
	stores []*objects
	m      *Manifest
	files  map[string]*fileIndex
	opener *format.Opener
	cache  *chunkCache
	runs   *semaphore.Weighted // bytes of runs under way
	good   []atomic.Int32      // by pack: the store that served it last
}

// fileIndex finds chunks by their place in a file.
type fileIndex struct {
	file   *File
	number uint32  // in Manifest.Files
	starts []int64 // of each chunk
}

// NewReader makes a Reader of a snapshot with the default options. It tries the stores in the given order. The caller
// keeps ownership of the stores and of m.
func NewReader(m *Manifest, stores ...*Store) *Reader { return ReaderOptions{}.NewReader(m, stores...) }

// NewReader is the package's NewReader with these options.
func (o ReaderOptions) NewReader(m *Manifest, stores ...*Store) *Reader {
	from := make([]*objects, len(stores))
	for i, s := range stores {
		from[i] = s.objects
	}
	return o.newReader(m, from)
}

func (o ReaderOptions) newReader(m *Manifest, stores []*objects) *Reader {
	if o.CacheBytes <= 0 {
		o.CacheBytes = defaultCache
	}
	r := &Reader{
		stores: stores,
		m:      m,
		files:  make(map[string]*fileIndex, len(m.Files)),
		opener: format.NewOpener(m),
		cache:  newChunkCache(o.CacheBytes, o.Pool),
		runs:   semaphore.NewWeighted(runMemory),
		good:   make([]atomic.Int32, len(m.Packs)),
	}
	for i := range m.Files {
		r.files[m.Files[i].Name] = newFileIndex(m, i)
	}
	return r
}

func newFileIndex(m *Manifest, i int) *fileIndex {
	f := &m.Files[i]
	x := &fileIndex{file: f, number: uint32(i), starts: make([]int64, len(f.Chunks))}
	var at int64
	for i := range f.Chunks {
		x.starts[i] = at
		at += int64(f.Chunks[i].Raw)
	}
	return x
}

// at returns the index of the chunk that holds the byte at off, which is inside the file.
func (x *fileIndex) at(off int64) int {
	return sort.Search(len(x.starts), func(i int) bool { return x.starts[i] > off }) - 1
}

// FileSize returns the size of a file in bytes, or 0 if there is none of that name.
func (r *Reader) FileSize(file string) int64 {
	if x, ok := r.files[file]; ok {
		return x.file.Size
	}
	return 0
}

// Locate returns the chunks that hold a range of a file, or none if there is no such range.
func (r *Reader) Locate(file string, off, n int64) (chunks []ChunkRef) {
	x, ok := r.files[file]
	if !ok || off < 0 || n <= 0 || off >= x.file.Size || n > x.file.Size-off {
		return nil
	}
	for i := x.at(off); i < len(x.starts) && x.starts[i] < off+n; i++ {
		chunks = append(chunks, ChunkRef{File: x.number, Index: uint32(i)})
	}
	return chunks
}

// Place returns where a chunk lies, which must be one of the snapshot.
func (r *Reader) Place(c ChunkRef) (file string, off, n int64) {
	f := &r.m.Files[c.File]
	return f.Name, r.files[f.Name].starts[c.Index], int64(f.Chunks[c.Index].Raw)
}

// ReadAt fills all of dst, slice after slice, with the file's bytes from off on. When it returns nil, every byte has
// been checked against its chunk's digest. After an error the content of dst is unspecified, and may be bytes that
// failed the check.
//
// Neighbouring chunks are read together, several reads at a time, and decoded by all processors. A chunk that lies
// wholly inside one slice of dst is decoded straight into it. Other chunks are decoded once, kept for a while, and
// copied, so that concurrent and neighbouring reads share the work.
//
// If the file does not exist, the error is ErrNotFound. If the range is not wholly inside the file, it is
// io.ErrUnexpectedEOF. If no store serves a chunk, the error says for each store why.
func (r *Reader) ReadAt(ctx context.Context, file string, off int64, dst [][]byte) error {
	x, ok := r.files[file]
	if !ok {
		return fmt.Errorf("read snapshot %s: file %q: %w", r.m.Meta.Key, file, ErrNotFound)
	}
	var length int64
	for _, b := range dst {
		length += int64(len(b))
	}
	if off < 0 || off > x.file.Size || length > x.file.Size-off {
		return fmt.Errorf("read snapshot %s: file %q: bytes %d+%d of %d: %w", r.m.Meta.Key, file, off, length, x.file.Size,
			io.ErrUnexpectedEOF)
	}
	if length == 0 {
		return nil
	}
	b := batch{r: r, file: x, out: scatter{rest: dst}}
	defer b.abandon()
	for i := x.at(off); length > 0; i++ {
		from := off - x.starts[i]
		n := min(int64(x.file.Chunks[i].Raw)-from, length)
		b.add(i, from, n)
		off += n
		length -= n
	}
	if err := b.finish(ctx); err != nil {
		return fmt.Errorf("read snapshot %s: file %q: %w", r.m.Meta.Key, file, err)
	}
	return ctx.Err()
}

// Prefetch reads a range of a file into the reader's memory, where the next ReadAt finds it. It reads whole chunks, up
// to half of CacheBytes, and ignores the rest of the range. It does not read chunks again that are loaded or being
// loaded. Its errors are those of ReadAt.
func (r *Reader) Prefetch(ctx context.Context, file string, off, n int64) error {
	x, ok := r.files[file]
	if !ok {
		return fmt.Errorf("prefetch snapshot %s: file %q: %w", r.m.Meta.Key, file, ErrNotFound)
	}
	if off < 0 || n < 0 || off > x.file.Size || n > x.file.Size-off {
		return fmt.Errorf("prefetch snapshot %s: file %q: bytes %d+%d of %d: %w", r.m.Meta.Key, file, off, n, x.file.Size,
			io.ErrUnexpectedEOF)
	}
	if n == 0 {
		return nil
	}
	b := batch{r: r, file: x}
	defer b.abandon()
	left := r.cache.max / 2
	for i := x.at(off); i < len(x.starts) && x.starts[i] < off+n; i++ {
		if left -= int64(x.file.Chunks[i].Raw); left < 0 {
			break
		}
		b.prefetch(i)
	}
	if err := b.finish(ctx); err != nil {
		return fmt.Errorf("prefetch snapshot %s: file %q: %w", r.m.Meta.Key, file, err)
	}
	return nil
}

// Has reports whether each chunk of a range of a file is in the reader's memory, or on its way there. It is false if
// there is no such range.
func (r *Reader) Has(file string, off, n int64) bool {
	refs := r.Locate(file, off, n)
	for _, ref := range refs {
		c := &r.m.Files[ref.File].Chunks[ref.Index]
		if _, there := r.cache.peek(chunkID{c.Digest, c.Raw}); !there && c.Codec != CodecZero {
			return false
		}
	}
	return len(refs) > 0
}

// PrefetchChunks is Prefetch for the chunks of a working set, up to three quarters of CacheBytes. It fetches them
// together, those that come first in the list before the others. It returns how many of them, from the first on, it has
// handled. The others did not fit; the caller can pass them in a later call.
func (r *Reader) PrefetchChunks(ctx context.Context, chunks []ChunkRef) (n int, err error) {
	if err := r.m.CheckRefs(chunks); err != nil {
		return 0, fmt.Errorf("prefetch snapshot %s: %w", r.m.Meta.Key, err)
	}
	b := batch{r: r, early: true}
	defer b.abandon()
	left := r.cache.max / 4 * 3
	for _, c := range chunks {
		b.file = r.files[r.m.Files[c.File].Name]
		if left -= int64(b.file.file.Chunks[c.Index].Raw); left < 0 {
			break
		}
		b.prefetch(int(c.Index))
		n++
	}
	if err := b.finish(ctx); err != nil {
		return 0, fmt.Errorf("prefetch snapshot %s: %w", r.m.Meta.Key, err)
	}
	return n, nil
}

// checks is how many objects are looked up at a time.
const checks = 64

// Guess looks for each pack of the snapshot in the first store, and takes it that the second store, if there is one,
// has the others. Until Check has found where the packs are, reads begin with the store that has a pack by that guess.
// Guess asks the first store alone.
func (r *Reader) Guess(ctx context.Context) {
	if len(r.stores) < 2 {
		return
	}
	for i := range r.m.Packs {
		if r.stores[0].statPack(ctx, r.m, uint32(i)) != nil {
			r.good[i].Store(1)
		}
	}
}

// Check checks that every pack of the snapshot is in one of the stores with its right size. It reads no data. For each
// pack that is not, there is a CorruptError, which is an ErrNotFound if no store has the pack. The errors are joined.
func (r *Reader) Check(ctx context.Context) error {
	errs := make([]error, len(r.m.Packs))
	var group errgroup.Group
	group.SetLimit(checks)
	for i := range r.m.Packs {
		group.Go(func() error {
			errs[i] = r.checkPack(ctx, uint32(i))
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(errs...)
}

func (r *Reader) checkPack(ctx context.Context, i uint32) error {
	var errs []error
	last := int(r.good[i].Load())
	for at := range r.stores {
		at = preferred(at, last)
		s := r.stores[at]
		err := s.statPack(ctx, r.m, i)
		if err == nil {
			r.good[i].Store(int32(at))
			return nil
		}
		errs = append(errs, fmt.Errorf("in %s: %w", s.location(), err))
	}
	if len(errs) == 0 {
		return fmt.Errorf("no store to read from: %w", ErrNotFound)
	}
	return errors.Join(errs...)
}

// Close frees the decoded chunks. Reads that are under way, or that begin later, still work.
func (r *Reader) Close() error {
	r.cache.close()
	return nil
}
