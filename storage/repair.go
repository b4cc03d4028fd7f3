package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"diapause.dev/storage/format"
	"golang.org/x/sync/errgroup"
)

// RepairResult is the result of Repair.
type RepairResult struct {
	Repaired []string        // objects that were damaged or missing, and are sound again
	Lost     []*CorruptError // objects of which no store has a sound copy
	Hurt     []Key           // other snapshots of the store that name an object of Lost
}

// Repair reads everything that a snapshot needs in dst, and replaces damaged or missing objects by sound copies from
// the other stores. It deletes nothing else: what is lost stays as it is. It may be interrupted and repeated, and may
// run beside readers, writers and sweeps. It must not run beside the snapshot's removal, which it would undo.
//
// If dst does not have the snapshot, the error is ErrNotFound. Other errors say why Repair could not check. report, if
// not nil, is called with the bytes of packs handled and their total, one call at a time.
func Repair(ctx context.Context, key Key, dst *Store, others []*Store,
	report func(done, total int64),
) (RepairResult, error) {
	r := &repair{dst: dst, others: others}
	if err := r.run(ctx, key, report); err != nil {
		return r.result, fmt.Errorf("repair %s in %s: %w", key, dst.objects.location(), err)
	}
	return r.result, nil
}

// repair is one run of Repair.
type repair struct {
	dst    *Store
	others []*Store

	mu     sync.Mutex
	result RepairResult
}

func (r *repair) run(ctx context.Context, key Key, report func(done, total int64)) error {
	if there, err := r.dst.Has(ctx, key); err != nil {
		return err
	} else if !there {
		return ErrNotFound
	}
	m, err := r.manifest(ctx, key)
	if m == nil || err != nil {
		return err
	}
	return errors.Join(r.key(ctx, m), r.packs(ctx, m, newProgress(report, totalSize(m.Packs))), r.hurt(ctx, key))
}

// manifest returns the snapshot's manifest. It restores a damaged manifest. If the manifest is lost, it returns nil.
func (r *repair) manifest(ctx context.Context, key Key) (*Manifest, error) {
	m, err := r.dst.Manifest(ctx, key)
	damage := CorruptErrors(err)
	if len(damage) == 0 {
		return m, err
	}
	for _, src := range r.others {
		m, data, err := src.read(ctx, key)
		if err != nil || r.dst.Trusts(m) != nil {
			continue // src has no manifest, or none that can be read, or one of whoever can write there
		}
		if err := r.restoreManifest(ctx, &replication{dst: r.dst, src: src, m: m, progress: newProgress(nil, 0)},
			data); err != nil {
			return nil, fmt.Errorf("from %s: %w", src.objects.location(), err)
		}
		return m, nil
	}
	r.result.Lost = append(r.result.Lost, damage...)
	return nil, nil
}

// restoreManifest copies the snapshot's manifest, and what it needs, from another store. It keeps the damaged bytes of
// the old manifest beside the new one: nobody can tell any longer to which snapshot they belonged. Until then the
// snapshot's packs may be swept, so it is as careful as a replication.
func (r *repair) restoreManifest(ctx context.Context, from *replication, data []byte) error {
	name := format.ManifestName(from.m.Meta.Key)
	if err := from.readKey(ctx); err != nil {
		return fmt.Errorf("read the data key: %w", err)
	}
	claim := r.dst.claims.to(from.m.Meta.Namespace, objectsOf(from.m))
	defer claim.drop(ctx)
	if err := claim.lay(ctx); err != nil {
		return err
	}
	if err := from.copy(ctx, nil); err != nil {
		return err
	}
	if err := claim.refresh(ctx); err != nil {
		return err
	}
	if err := from.confirm(ctx, claim); err != nil {
		return err
	}
	if same, err := r.dst.hasBytes(ctx, from.m.Meta.Key, data); same {
		// only a damaged key kept the manifest from being read
		r.repaired(format.KeyName(from.m.Meta.Namespace, from.m.DataKey.ID()))
		return nil
	} else if !errors.Is(err, ErrCorrupt) && !r.unreadable(ctx, from.m.Meta.Key, err) {
		return err
	}
	bad, err := r.dst.objects.readAll(ctx, name, format.MaxManifest)
	if err != nil {
		return err
	}
	if err := r.dst.objects.backend.Replace(ctx, name+".damaged", bad); err != nil {
		return err
	}
	if err := r.dst.objects.backend.Replace(ctx, name, data); err != nil {
		return err
	}
	r.repaired(name)
	return nil
}

// unreadable reports whether the manifest that kept another one from its place, with err, is of use to nobody: it is in
// one piece, and still not what it must be.
func (r *repair) unreadable(ctx context.Context, key Key, err error) bool {
	if !errors.Is(err, ErrExists) {
		return false
	}
	_, err = r.dst.Manifest(ctx, key)
	name := format.ManifestName(key)
	return slices.ContainsFunc(CorruptErrors(err), func(c *CorruptError) bool { return c.Object == name })
}

func (r *repair) repaired(object string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Repaired = append(r.result.Repaired, object)
}

// key repairs the data key of an encrypted snapshot.
func (r *repair) key(ctx context.Context, m *Manifest) error {
	damage := CorruptErrors(r.dst.dataKeys.verify(ctx, m))
	if len(damage) == 0 {
		return nil
	}
	for _, src := range r.others {
		from := &replication{dst: r.dst, src: src, m: m}
		if from.readKey(ctx) == nil && from.copyKey(ctx) == nil {
			r.repaired(damage[0].Object)
			return nil
		}
	}
	r.result.Lost = append(r.result.Lost, damage...)
	return nil
}

// packs repairs the packs of a snapshot, as many at a time as Verify reads.
func (r *repair) packs(ctx context.Context, m *Manifest, p *progress) error {
	errs := make([]error, len(m.Packs))
	opener, chunks := format.NewOpener(m), chunksByPack(m)
	in := func(s *Store) *verification {
		return &verification{objects: s.objects, options: VerifyOptions{ReadData: true}, m: m, opener: opener, chunks: chunks}
	}
	var group errgroup.Group
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4)) // packs in memory
	for i := range m.Packs {
		group.Go(func() error {
			errs[i] = r.pack(ctx, uint32(i), m, in)
			p.add(m.Packs[i].Size)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// pack repairs a pack if it is damaged.
func (r *repair) pack(ctx context.Context, i uint32, m *Manifest, in func(*Store) *verification) error {
	err := in(r.dst).pack(ctx, i)
	damage := CorruptErrors(err)
	if len(damage) == 0 {
		return err
	}
	for _, src := range r.others {
		if in(src).pack(ctx, i) != nil {
			continue
		}
		if err := r.replace(ctx, &replication{dst: r.dst, src: src, m: m}, i); err != nil {
			return fmt.Errorf("replace %s from %s: %w", m.PackObject(i), src.objects.location(), err)
		}
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Lost = append(r.result.Lost, damage...)
	return nil
}

func (r *repair) replace(ctx context.Context, from *replication, i uint32) error {
	name := from.m.PackObject(i)
	if err := r.dst.objects.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := from.createPack(ctx, i); err != nil && !errors.Is(err, ErrExists) { // created by another process
		return err
	}
	r.repaired(name)
	return nil
}

// hurt finds the other snapshots that need a lost object.
func (r *repair) hurt(ctx context.Context, key Key) error {
	if len(r.result.Lost) == 0 {
		return nil
	}
	var objects []string
	for _, l := range r.result.Lost {
		objects = append(objects, l.Object)
	}
	users, err := r.dst.Users(ctx, key.Namespace, objects...)
	r.result.Hurt = slices.DeleteFunc(users, func(k Key) bool { return k == key })
	return err
}
