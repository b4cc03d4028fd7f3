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
// is copied and the error is ErrExists. When src's own copy is damaged the error is ErrSource.
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

// fromSource makes damage found in the source an ErrSource.
func fromSource(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrSource, err)
	}
	return err
}

// look asks, side by side, whether dst has the manifest, and which packs it has.
func (r *replication) look(ctx context.Context, data []byte) (done bool, there []bool, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		done, err = r.dst.hasManifest(ctx, r.m.Meta.Key, data)
		return err
	})
	group.Go(func() (err error) {
		there, err = r.find(ctx)
		return err
	})
	err = group.Wait()
	return done, there, err
}

// find asks which packs dst has in their right size.
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
	info, err := r.dst.backend.Stat(ctx, r.m.packObject(i))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && info.Size == r.m.Packs[i].Size, err
}

// publish copies what the snapshot needs and makes it exist in dst, with the same care as
// Writer.publish. The claim is laid while the packs are copied; one that has become old by then is
// laid again.
func (r *replication) publish(ctx context.Context, data []byte, there []bool) error {
	claim := r.dst.newClaim(r.m.Meta.Namespace, r.m.objects())
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
	if err := r.confirm(ctx); err != nil {
		return err
	}
	failpoint.CopiesComplete.Hit()
	if err := r.dst.putManifest(ctx, r.m.Meta.Key, data); err != nil {
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
	for began := r.dst.clock(); ; {
		found, notices, err := r.dst.condemned(ctx, r.m.Meta.Namespace, r.m.objects())
		if err != nil {
			return err
		}
		if r.dst.clock.since(began) > noticeLife { // their sweeps are dead, or stop when they do not find them
			for _, name := range notices {
				if err := r.dst.removeNotice(ctx, name); err != nil {
					return err
				}
			}
			found = nil
		}
		if err := r.copy(ctx, nil); err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		select {
		case <-time.After(sweepPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasManifest reports whether a snapshot's manifest is these very bytes. Those of another snapshot are ErrExists;
// damaged ones, which nobody can tell from those, are ErrCorrupt.
func (s *Store) hasManifest(ctx context.Context, key Key, data []byte) (bool, error) {
	name := manifestName(key)
	have, err := s.readAll(ctx, name, maxManifest)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", name, err)
	case bytes.Equal(have, data):
		return true, nil
	}
	if _, err := openEnvelope(have); err != nil && !errors.Is(err, ErrFormat) {
		return false, &CorruptError{Object: name, Key: key, Reason: "manifest", Err: err}
	}
	return false, fmt.Errorf("another snapshot %s: %w", key, ErrExists)
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
	key      []byte // of an encrypted snapshot: its data key, as it is wrapped in src
	progress *progress
}

// readKey reads the data key of an encrypted snapshot and checks it: without it, all snapshots of the
// lineage are lost.
func (r *replication) readKey(ctx context.Context) (err error) {
	if r.m.lock == nil {
		return nil
	}
	if r.key, err = r.src.readAll(ctx, keyName(r.m.Meta.Namespace, r.m.lock.id), int64(wrappedSize)); err != nil {
		return err
	}
	return r.checkKey(r.key)
}

// checkKey returns an error unless data is the data key, wrapped by a key that is at hand.
func (r *replication) checkKey(data []byte) error {
	src, err := r.src.keysOf(r.m.Meta.Namespace)
	if err != nil {
		return err
	}
	dst, err := r.dst.keysOf(r.m.Meta.Namespace)
	if err != nil {
		return err
	}
	_, _, err = unwrap(r.m.Meta.Namespace, r.m.lock.id, data, append(src.all(), dst.all()...))
	return err
}

// copy brings what dst has not to dst: there says which packs it has; nil: it is asked.
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

// copyKey brings the data key to dst, unless it is there: by the parent, or an earlier attempt. One
// that is damaged is replaced, one that is wrapped by a key that is not at hand stays.
func (r *replication) copyKey(ctx context.Context) error {
	if r.m.lock == nil {
		return nil
	}
	name := keyName(r.m.Meta.Namespace, r.m.lock.id)
	have, err := r.dst.readAll(ctx, name, int64(wrappedSize))
	if errors.Is(err, ErrNotFound) {
		err = r.dst.backend.Create(ctx, name, bytes.NewReader(r.key), int64(len(r.key)))
		if !errors.Is(err, ErrExists) {
			return err
		}
		have, err = r.dst.readAll(ctx, name, int64(wrappedSize)) // meanwhile, by another replication
	}
	if err == nil {
		err = r.checkKey(have)
	}
	switch {
	case errors.Is(err, ErrKey):
		return nil
	case errors.Is(err, ErrCorrupt):
		r.dst.log.Warn("replacing a damaged data key", "snapshot", r.m.Meta.Key.String(), "object", name)
		return r.dst.backend.Replace(ctx, name, r.key)
	}
	return err
}

// copyPacks brings the packs that are not there to dst.
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

// copyPack creates a pack in dst. One that has come there meanwhile is another replication's; in
// another size it is damaged, for no writer leaves it so.
func (r *replication) copyPack(ctx context.Context, i uint32) error {
	err := r.createPack(ctx, i)
	if !errors.Is(err, ErrExists) {
		return err
	}
	if there, err := r.has(ctx, i); there || err != nil {
		return err
	}
	name := r.m.packObject(i)
	r.dst.log.Warn("replacing a pack of the wrong size", "snapshot", r.m.Meta.Key.String(), "object", name)
	if err := r.dst.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	failpoint.PackToBeRewritten.Hit()
	return r.createPack(ctx, i)
}

func (r *replication) createPack(ctx context.Context, i uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := r.dst.backend.Create(ctx, r.m.packObject(i), newPackReader(ctx, r.src, r.m, i), r.m.Packs[i].Size)
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
		return fromSource(r.store.damaged(r.m, r.index, "pack", err))
	}
	r.damage.Add(piece)
	r.off += int64(len(piece))
	if r.off == size && r.damage.Sum() != r.m.Packs[r.index].Digest {
		return fromSource(r.store.damaged(r.m, r.index, "pack digest mismatch", nil))
	}
	r.unread = piece
	return nil
}
