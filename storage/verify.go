package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"diapause.dev/storage/format"
	"golang.org/x/sync/errgroup"
)

// VerifyOptions of Store.Verify.
type VerifyOptions struct {
	// ReadData makes Verify read every pack and check every byte of it. Otherwise Verify checks only that the packs exist
	// in their right sizes.
	ReadData bool

	// Subset, unless it is zero, restricts ReadData to a share of the packs.
	Subset Subset

	// Progress, if set, is called with the bytes of packs checked and their total, one call at a time.
	Progress func(done, total int64)
}

// Verify checks what a manifest names in this store. Each damaged pack, and a damaged data key, is one CorruptError.
// These are joined, together with errors that kept Verify from checking.
func (s *Store) Verify(ctx context.Context, m *Manifest, o VerifyOptions) error {
	if err := o.Subset.Validate(); err != nil {
		return err
	}
	v := &verification{objects: s.objects, options: o, m: m, opener: format.NewOpener(m), chunks: chunksByPack(m)}
	v.progress = newProgress(o.Progress, totalSize(m.Packs))
	errs := make([]error, len(m.Packs)+1)
	errs[len(m.Packs)] = s.dataKeys.verify(ctx, m)
	var group errgroup.Group
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4)) // packs in memory
	for i := range m.Packs {
		group.Go(func() error {
			errs[i] = v.pack(ctx, uint32(i))
			v.progress.add(m.Packs[i].Size)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// verification is one run of Verify.
type verification struct {
	objects  *objects
	options  VerifyOptions
	m        *Manifest
	opener   *format.Opener
	chunks   [][]*Chunk
	progress *progress
}

// chunksByPack lists the chunks of each pack that a manifest names.
func chunksByPack(m *Manifest) [][]*Chunk {
	by := make([][]*Chunk, len(m.Packs))
	for _, f := range m.Files {
		for i := range f.Chunks {
			if c := &f.Chunks[i]; c.Codec != CodecZero {
				by[c.Pack] = append(by[c.Pack], c)
			}
		}
	}
	return by
}

func totalSize(packs []Pack) (n int64) {
	for _, p := range packs {
		n += p.Size
	}
	return n
}

func (v *verification) pack(ctx context.Context, i uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := v.objects.statPack(ctx, v.m, i)
	if err != nil || !v.options.ReadData || !v.options.Subset.has(v.m.Packs[i].ID) {
		return err
	}
	name := v.m.PackObject(i)
	buffer := packBuffers.Get().(*[]byte)
	defer packBuffers.Put(buffer)
	data := sized(buffer, int(v.m.Packs[i].Size))
	if err := v.objects.backend.ReadAt(ctx, name, data, 0); err != nil {
		return v.objects.damaged(v.m, i, "pack", err)
	}
	reason := format.CheckPack(v.m.Packs[i], data)
	if bad := v.badChunks(i, data); bad > 0 {
		reason = fmt.Sprintf("%d of the %d chunks that the snapshot has in it are damaged", bad, len(v.chunks[i]))
	}
	if reason != "" {
		return &CorruptError{Object: name, Key: v.m.Meta.Key, Reason: reason}
	}
	return nil
}

// badChunks counts the chunks of a pack that are not what the manifest says.
func (v *verification) badChunks(i uint32, data []byte) (bad int) {
	buffer := getBuffer()
	defer putBuffer(buffer)
	for _, c := range v.chunks[i] {
		raw := sized(buffer, int(c.Raw))
		if v.opener.Unpack(c, raw, data[c.Offset:c.Offset+c.Stored]) != nil {
			bad++
		}
	}
	return bad
}

// progress adds up work that several goroutines do, and reports it one call at a time.
type progress struct {
	report func(done, total int64)
	total  int64

	mu   sync.Mutex
	done int64
}

func newProgress(report func(done, total int64), total int64) *progress {
	return &progress{report: report, total: total}
}

func (p *progress) add(n int64) {
	if p.report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.report(p.done, p.total)
}
