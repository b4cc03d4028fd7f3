package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// copies is how many packs are copied at a time. copyBuffer is how much of each is read at once, in bytes.
const (
	copies     = 4
	copyBuffer = 4 << 20
)

// Replicate copies a snapshot from src to dst: first the packs that dst does not have yet, each checked on the way,
// then the manifest, byte for byte. It may be interrupted and repeated, also by several callers at once: it does not
// copy packs again that dst has in the right size. If dst already has the snapshot, only packs that it has lost are
// copied. If dst has another snapshot under the same key, nothing is copied and the error is ErrExists. If the copy in
// src is damaged, the error is ErrSource.
//
// report, if not nil, is called with the bytes of packs handled and their total, one call at a time.
func Replicate(ctx context.Context, dst, src *Store, key Key, report func(done, total int64)) error {
	if err := replicate(ctx, dst, src, key, report); err != nil {
		return fmt.Errorf("replicate %s from %s to %s: %w", key, src.objects.location(), dst.objects.location(), err)
	}
	return nil
}

func replicate(ctx context.Context, dst, src *Store, key Key, report func(done, total int64)) error {
	m, data, err := src.read(ctx, key)
	if err != nil {
		return fromSource(err)
	}
	r := &replication{dst: dst, src: src, m: m, progress: newProgress(report, totalSize(m.Packs))}
	if err := r.readKey(ctx); err != nil {
		return fmt.Errorf("read the data key: %w", fromSource(err))
	}
	done, there, err := r.look(ctx, data)
	if err != nil {
		return err
	}
	if done {
		return r.copy(ctx, there)
	}
	return r.publish(ctx, data, there)
}

// fromSource makes an error about damage in the source an ErrSource.
func fromSource(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrSource, err)
	}
	return err
}

// look finds out, concurrently, whether dst has the manifest, and which packs it has.
func (r *replication) look(ctx context.Context, data []byte) (done bool, there []bool, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		done, err = r.dst.hasBytes(ctx, r.m.Meta.Key, data)
		return err
	})
	group.Go(func() (err error) {
		there, err = r.find(ctx)
		return err
	})
	err = group.Wait()
	return done, there, err
}

// find finds out which packs dst has in their right size.
func (r *replication) find(ctx context.Context) ([]bool, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(checks)
	there := make([]bool, len(r.m.Packs))
	for i := range there {
		group.Go(func() (err error) {
			there[i], err = r.has(ctx, uint32(i))
			return err
		})
	}
	err := group.Wait()
	return there, err
}

// has reports whether dst has a pack in its right size.
func (r *replication) has(ctx context.Context, i uint32) (bool, error) {
	info, err := r.dst.objects.backend.Stat(ctx, r.m.PackObject(i))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && info.Size == r.m.Packs[i].Size, err
}

// publish copies what the snapshot needs and makes the snapshot exist in dst, as carefully as Writer.publish. It lays
// the claim while it copies the packs. If the claim is too old by then, publish lays it again.
func (r *replication) publish(ctx context.Context, data []byte, there []bool) error {
	claim := r.dst.claims.to(r.m.Meta.Namespace, objectsOf(r.m))
	defer claim.drop(ctx)
	group, copying := errgroup.WithContext(ctx)
	group.Go(func() error { return claim.lay(copying) })
	group.Go(func() error { return r.copy(copying, there) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := claim.refresh(ctx); err != nil {
		return err
	}
	r.progress = newProgress(nil, 0)
	if err := r.confirm(ctx, claim); err != nil {
		return err
	}
	failpoint.CopiesComplete.Hit()
	if err := r.dst.CheckIdentity(ctx); err != nil { // the packs may lie in a bucket that was made again
		return err
	}
	if err := r.dst.manifests.put(ctx, r.m.Meta.Key, data); err != nil {
		return err
	}
	failpoint.ManifestCopied.Hit()
	if err := r.confirm(ctx, claim); err != nil {
		return err
	}
	failpoint.CopiesConfirmed.Hit()
	return nil
}

// confirm waits until no sweep of dst is about to delete what the snapshot needs. It copies again what a sweep has
// deleted meanwhile: objects that were in dst before and that nothing named until now.
func (r *replication) confirm(ctx context.Context, claim *claim) error {
	return claim.outlast(ctx, objectsOf(r.m), func() error { return r.copy(ctx, nil) })
}

// replication is one run of Replicate.
type replication struct {
	dst, src *Store
	m        *Manifest
	key      []byte // of an encrypted snapshot: its data key, as it is wrapped in src
	progress *progress
}

// readKey reads the data key of an encrypted snapshot and checks it, because without the key all snapshots of the
// lineage are lost.
func (r *replication) readKey(ctx context.Context) (err error) {
	if r.m.DataKey == nil {
		return nil
	}
	name := format.KeyName(r.m.Meta.Namespace, r.m.DataKey.ID())
	if r.key, err = r.src.objects.readAll(ctx, name, int64(format.WrappedSize)); err != nil {
		return err
	}
	return r.checkKey(r.key)
}

// checkKey returns an error unless data is the data key, wrapped by a known key.
func (r *replication) checkKey(data []byte) error {
	src, err := r.src.dataKeys.of(r.m.Meta.Namespace)
	if err != nil {
		return err
	}
	dst, err := r.dst.dataKeys.of(r.m.Meta.Namespace)
	if err != nil {
		return err
	}
	_, _, err = format.UnwrapDataKey(r.m.Meta.Namespace, r.m.DataKey.ID(), data, append(src.all(), dst.all()...))
	return err
}

// copy copies to dst what dst lacks. there says which packs dst has. If there is nil, copy finds out.
func (r *replication) copy(ctx context.Context, there []bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := r.copyKey(ctx); err != nil {
			return fmt.Errorf("copy the data key: %w", err)
		}
		return nil
	})
	group.Go(func() (err error) {
		if there == nil {
			there, err = r.find(ctx)
		}
		if err != nil {
			return err
		}
		return r.copyPacks(ctx, there)
	})
	return group.Wait()
}

// copyKey copies the data key to dst, unless dst has it already, from the parent or an earlier attempt. It replaces a
// damaged key. A key that is wrapped by an unknown key stays.
func (r *replication) copyKey(ctx context.Context) error {
	if r.m.DataKey == nil {
		return nil
	}
	name := format.KeyName(r.m.Meta.Namespace, r.m.DataKey.ID())
	have, err := r.dst.objects.readAll(ctx, name, int64(format.WrappedSize))
	if errors.Is(err, ErrNotFound) {
		err = r.dst.objects.backend.Create(ctx, name, bytes.NewReader(r.key), int64(len(r.key)))
		if !errors.Is(err, ErrExists) {
			return err
		}
		have, err = r.dst.objects.readAll(ctx, name, int64(format.WrappedSize)) // created meanwhile by another replication
	}
	if err == nil {
		err = r.checkKey(have)
	}
	switch {
	case errors.Is(err, ErrKey):
		return nil
	case errors.Is(err, ErrCorrupt):
		r.dst.objects.log.Warn("replacing a damaged data key", "snapshot", r.m.Meta.Key.String(), "object", name)
		return r.dst.objects.backend.Replace(ctx, name, r.key)
	}
	return err
}

// copyPacks copies the packs that dst does not have.
func (r *replication) copyPacks(ctx context.Context, there []bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copies)
	for i := range there {
		group.Go(func() error {
			if !there[i] {
				if err := r.copyPack(ctx, uint32(i)); err != nil {
					return err
				}
			}
			r.progress.add(r.m.Packs[i].Size)
			return nil
		})
	}
	return group.Wait()
}

// copyPack creates a pack in dst. If the pack exists by now, another replication has made it. If it has another size,
// it is damaged, because no writer leaves such a pack.
func (r *replication) copyPack(ctx context.Context, i uint32) error {
	err := r.createPack(ctx, i)
	if !errors.Is(err, ErrExists) {
		return err
	}
	if there, err := r.has(ctx, i); there || err != nil {
		return err
	}
	name := r.m.PackObject(i)
	r.dst.objects.log.Warn("replacing a pack of the wrong size", "snapshot", r.m.Meta.Key.String(), "object", name)
	if err := r.dst.objects.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	failpoint.PackToBeRewritten.Hit()
	return r.createPack(ctx, i)
}

func (r *replication) createPack(ctx context.Context, i uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	from := newPackReader(ctx, r.src.objects, r.m, i)
	err := r.dst.objects.backend.Create(ctx, r.m.PackObject(i), from, r.m.Packs[i].Size)
	if err == nil {
		failpoint.PackCopied.Hit()
	}
	return err
}

// packReader reads a pack from a store. It yields io.EOF only if the pack is what the manifest says.
type packReader struct {
	ctx    context.Context
	source *objects
	m      *Manifest
	index  uint32
	damage digest.Damage
	buffer []byte // of copyBuffer
	unread []byte // the part of buffer that Read has not returned
	off    int64  // offset in the pack of the byte after unread
}

func newPackReader(ctx context.Context, s *objects, m *Manifest, i uint32) *packReader {
	return &packReader{ctx: ctx, source: s, m: m, index: i, buffer: make([]byte, min(copyBuffer, m.Packs[i].Size))}
}

func (r *packReader) Read(p []byte) (int, error) {
	if len(r.unread) == 0 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// fill reads the next piece. It checks the whole pack before it returns the last piece. So a consumer that stops at the
// expected size gets the check, too.
func (r *packReader) fill() error {
	size := r.m.Packs[r.index].Size
	if r.off == size {
		return io.EOF
	}
	piece := r.buffer[:min(int64(len(r.buffer)), size-r.off)]
	if err := r.source.backend.ReadAt(r.ctx, r.m.PackObject(r.index), piece, r.off); err != nil {
		return fromSource(r.source.damaged(r.m, r.index, "pack", err))
	}
	r.damage.Add(piece)
	r.off += int64(len(piece))
	if r.off == size && r.damage.Sum() != r.m.Packs[r.index].Digest {
		return fromSource(r.source.damaged(r.m, r.index, "pack digest mismatch", nil))
	}
	r.unread = piece
	return nil
}
