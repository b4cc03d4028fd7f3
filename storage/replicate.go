package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/failpoint"
)

// copies is how many packs are copied at a time, and copyBuffer how much of each is read at once.
const (
	copies     = 4
	copyBuffer = 4 << 20
)

// Replicate copies a snapshot from src to dst: the packs that dst does not have yet, each checked
// on the way, then the manifest, byte for byte. It may be interrupted and repeated, also by several
// at once: what is there already in its right size is not copied again. When dst has the snapshot
// already, only packs that it lost are copied; when it has another one under the same key, nothing
// is copied and the error is ErrExists.
//
// Progress, if not nil, is called with the bytes of packs dealt with and to be dealt with, one call
// at a time.
func Replicate(ctx context.Context, dst, src *Store, key Key, report func(done, total int64)) error {
	if err := replicate(ctx, dst, src, key, report); err != nil {
		return fmt.Errorf("replicate %s from %s to %s: %w", key, src.backend.Location(), dst.backend.Location(), err)
	}
	return nil
}

func replicate(ctx context.Context, dst, src *Store, key Key, report func(done, total int64)) error {
	m, data, err := src.readManifest(ctx, key)
	if err != nil {
		return err
	}
	done, err := dst.hasManifest(ctx, key, data)
	if err != nil {
		return err
	}
	r := &replication{dst: dst, src: src, m: m, progress: newProgress(report, totalSize(m.Packs))}
	if err := r.copyKey(ctx); err != nil {
		return fmt.Errorf("copy the data key: %w", err)
	}
	if err := r.copyPacks(ctx); err != nil || done {
		return err
	}
	return r.publish(ctx, key, data)
}

// publish makes the snapshot exist in dst, with the same care as Writer.publish.
func (r *replication) publish(ctx context.Context, key Key, data []byte) error {
	r.progress = newProgress(nil, 0)
	claim, err := r.dst.claim(ctx, key.Namespace, r.m.objects())
	if err != nil {
		return err
	}
	defer claim.drop(ctx)
	if err := r.confirm(ctx); err != nil {
		return err
	}
	failpoint.CopiesComplete.Hit()
	if err := r.dst.putManifest(ctx, key, data); err != nil {
		return err
	}
	failpoint.ManifestCopied.Hit()
	if err := r.confirm(ctx); err != nil {
		return err
	}
	failpoint.CopiesConfirmed.Hit()
	return nil
}

// sweepPoll is how often it is asked whether a sweep has ended.
const sweepPoll = time.Second

// confirm copies again what a sweep of dst took that was there before and that nothing named until
// now, once no sweep is about to take more of it. A sweep that gives notice later finds the claim, or
// the manifest.
func (r *replication) confirm(ctx context.Context) error {
	for began := time.Now(); ; {
		found, err := r.dst.condemned(ctx, r.m.Meta.Namespace, r.m.objects())
		if err != nil {
			return err
		}
		if err := errors.Join(r.copyKey(ctx), r.copyPacks(ctx)); err != nil {
			return err
		}
		if len(found) == 0 || time.Since(began) > noticeLife {
			return nil
		}
		select {
		case <-time.After(sweepPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasManifest reports whether a snapshot's manifest is these very bytes. Others are ErrExists.
func (s *Store) hasManifest(ctx context.Context, key Key, data []byte) (bool, error) {
	name := manifestName(key)
	have, err := s.readAll(ctx, name, maxManifest)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", name, err)
	case !bytes.Equal(have, data):
		return false, fmt.Errorf("another snapshot %s: %w", key, ErrExists)
	}
	return true, nil
}

// putManifest creates a manifest; that it was made meanwhile, by whomever, is success.
func (s *Store) putManifest(ctx context.Context, key Key, data []byte) error {
	err := s.backend.Create(ctx, manifestName(key), bytes.NewReader(data), int64(len(data)))
	if err == nil {
		return nil
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	if same, lookErr := s.hasManifest(look, key, data); lookErr == nil && same {
		return nil
	}
	return err
}

// replication is one run of Replicate.
type replication struct {
	dst, src *Store
	m        *Manifest
	progress *progress
}

// copyKey brings the data key of an encrypted snapshot to dst, as it is wrapped in src. It is checked
// on the way: without it, all snapshots of the lineage are lost.
func (r *replication) copyKey(ctx context.Context) error {
	if r.m.lock == nil {
		return nil
	}
	name := keyName(r.m.Meta.Namespace, r.m.lock.id)
	data, err := r.src.readAll(ctx, name, int64(wrappedSize))
	if err != nil {
		return err
	}
	keys, err := r.keys()
	if err != nil {
		return err
	}
	if _, _, err := unwrap(r.m.Meta.Namespace, r.m.lock.id, data, keys); err != nil {
		return err
	}
	err = r.dst.backend.Create(ctx, name, bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, ErrExists) { // by its parent, or an earlier attempt
		return r.repairKey(ctx, name, data, keys)
	}
	return err
}

// keys returns what may wrap the data key in either store.
func (r *replication) keys() ([]Secret, error) {
	src, err := r.src.keysOf(r.m.Meta.Namespace)
	if err != nil {
		return nil, err
	}
	dst, err := r.dst.keysOf(r.m.Meta.Namespace)
	return append(src.all(), dst.all()...), err
}

// repairKey replaces a data key in dst that is damaged. One that is wrapped by a key that is not at
// hand stays.
func (r *replication) repairKey(ctx context.Context, name string, good []byte, keys []Secret) error {
	have, err := r.dst.readAll(ctx, name, int64(wrappedSize))
	if err == nil {
		_, _, err = unwrap(r.m.Meta.Namespace, r.m.lock.id, have, keys)
	}
	switch {
	case errors.Is(err, ErrKey):
		return nil
	case errors.Is(err, ErrCorrupt):
		r.dst.log.Warn("replacing a damaged data key", "snapshot", r.m.Meta.Key.String(), "object", name)
		return r.dst.backend.Replace(ctx, name, good)
	}
	return err
}

// copyPacks brings all packs of the manifest to dst.
func (r *replication) copyPacks(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copies)
	for i := range r.m.Packs {
		group.Go(func() error {
			if err := r.copyPack(ctx, uint32(i)); err != nil {
				return err
			}
			r.progress.add(r.m.Packs[i].Size)
			return nil
		})
	}
	return group.Wait()
}

func (r *replication) copyPack(ctx context.Context, i uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name, pack := r.m.packObject(i), r.m.Packs[i]
	switch info, err := r.dst.backend.Stat(ctx, name); {
	case err == nil && info.Size == pack.Size:
		return nil
	case err == nil: // damaged: no writer leaves it so
		r.dst.log.Warn("replacing a pack of the wrong size", "snapshot", r.m.Meta.Key.String(), "object", name, "size", info.Size, "want", pack.Size)
		if err := r.dst.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		failpoint.PackToBeRewritten.Hit()
	case !errors.Is(err, ErrNotFound):
		return err
	}
	err := r.dst.backend.Create(ctx, name, newPackReader(ctx, r.src, r.m, i), pack.Size)
	if errors.Is(err, ErrExists) {
		return r.dst.statPack(ctx, r.m, i) // by another replication
	}
	if err == nil {
		failpoint.PackCopied.Hit()
	}
	return err
}

// packReader reads a pack from a store, and yields io.EOF only if it was what the manifest says.
type packReader struct {
	ctx    context.Context
	store  *Store
	m      *Manifest
	index  uint32
	damage digest.Damage
	buffer []byte // of copyBuffer
	unread []byte // of buffer
	off    int64  // of the pack, behind unread
}

func newPackReader(ctx context.Context, s *Store, m *Manifest, i uint32) *packReader {
	return &packReader{ctx: ctx, store: s, m: m, index: i, buffer: make([]byte, min(copyBuffer, m.Packs[i].Size))}
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

// fill reads the next piece. The last piece is not handed out before the whole has been checked, so
// that a consumer that stops at the expected size has had the check too.
func (r *packReader) fill() error {
	size := r.m.Packs[r.index].Size
	if r.off == size {
		return io.EOF
	}
	piece := r.buffer[:min(int64(len(r.buffer)), size-r.off)]
	if err := r.store.backend.ReadAt(r.ctx, r.m.packObject(r.index), piece, r.off); err != nil {
		return r.store.damaged(r.m, r.index, "pack", err)
	}
	r.damage.Add(piece)
	r.off += int64(len(piece))
	if r.off == size && r.damage.Sum() != r.m.Packs[r.index].Digest {
		return r.store.damaged(r.m, r.index, "pack digest mismatch", nil)
	}
	r.unread = piece
	return nil
}
