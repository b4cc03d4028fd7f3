package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// Commit waits until all packs are durable and then writes the manifest, which makes the snapshot exist. meta.Key may
// be zero; otherwise it must be the writer's. If meta.Parent is nil, it is set from the options. If another writer has
// made the snapshot meanwhile, the error is ErrExists. After an error the snapshot does not exist and none of its
// objects are left, as far as the backend could be asked. A pack that could not be removed is left to Sweep.
func (w *Writer) Commit(ctx context.Context, meta snapshot.Meta) (*Manifest, error) {
	if w.ended {
		return nil, w.wrap(errors.New("commit after the end"))
	}
	stop := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
	defer stop()
	defer w.Abort() // no effect after success
	if err := w.drain(); err != nil {
		return nil, w.wrap(err)
	}
	failpoint.PacksComplete.Hit()
	w.lineage.forget()
	w.options.Parent = identityOf(w.options.Parent)
	m, err := w.buildManifest(meta)
	if err != nil {
		return nil, w.wrap(err)
	}
	if err := w.publish(ctx, m); err != nil {
		return nil, w.wrap(err)
	}
	w.prune(ctx, m)
	return m, nil
}

// buildManifest makes the manifest of the packed chunks. It leaves out packs that no chunk names (a parent's), and
// numbers the others in the order in which the files name them.
func (w *Writer) buildManifest(meta snapshot.Meta) (*Manifest, error) {
	if meta.Key == (Key{}) {
		meta.Key = w.key
	}
	if meta.Key != w.key {
		return nil, fmt.Errorf("%w: commit as %s", ErrInvalidName, meta.Key)
	}
	if p := w.options.Parent; meta.Parent == nil && p != nil {
		key := p.Meta.Key
		meta.Parent = &key
	}
	if w.lineage.lock == nil && snapshot.MustBeEncrypted(meta.UID) {
		return nil, fmt.Errorf("%w: namespace %s had a current key when the snapshot was begun, and has none now", ErrKey,
			w.key.Namespace)
	}
	meta.NamespaceKey = w.lineage.wrapping
	m := &Manifest{Format: format.Version, Meta: meta, DigestKey: w.lineage.digestKey, DataKey: w.lineage.lock}
	all := append(w.lineage.packs[:len(w.lineage.packs):len(w.lineage.packs)], w.packer.written()...)
	number := map[uint32]uint32{}
	for _, f := range w.files {
		for i := range f.chunks {
			c := &f.chunks[i]
			if c.Codec == CodecZero {
				continue
			}
			n, ok := number[c.Pack]
			if !ok {
				n = uint32(len(m.Packs))
				number[c.Pack] = n
				m.Packs = append(m.Packs, all[c.Pack])
			}
			c.Pack = n
		}
		m.Files = append(m.Files, File{Name: f.name, Size: f.size, Chunks: f.chunks, Prints: f.prints})
	}
	return m, nil
}

// publish writes the manifest, which makes the snapshot exist. It checks that no sweep has deleted, or is about to
// delete, what the manifest names. The first check is before the manifest is written, so that a snapshot that exists is
// whole even if this process dies the next moment. The second is after, in case a sweep considered the claim too old.
func (w *Writer) publish(ctx context.Context, m *Manifest) error {
	data, err := encode(m, w.store.writing.signingKey)
	if err != nil {
		return err
	}
	if err := w.checkKeys(m); err != nil {
		return err
	}
	if err := w.checkParent(ctx); err != nil {
		return err
	}
	claim := w.store.claims.to(w.key.Namespace, objectsOf(m))
	defer claim.drop(ctx)
	if err := claim.lay(ctx); err != nil {
		return err
	}
	if err := w.confirm(ctx, claim, m); err != nil {
		return err
	}
	failpoint.ManifestReady.Hit()
	if err := w.createManifest(ctx, m, data); err != nil {
		return err
	}
	failpoint.ManifestMade.Hit()
	if err := w.confirm(ctx, claim, m); err != nil {
		return errors.Join(err, w.retract(ctx))
	}
	failpoint.SnapshotConfirmed.Hit()
	w.manifest, w.ended = manifestWritten, true
	w.unwatch()
	w.cancel(nil)
	return nil
}

// checkKeys refuses a snapshot in the clear that could not be read: the key file may have changed since it was begun.
// For an encrypted one, confirm finds that out.
func (w *Writer) checkKeys(m *Manifest) error {
	if m.DataKey != nil {
		return nil
	}
	if err := w.store.checkPlain(m); err != nil {
		return fmt.Errorf("it was begun without a key: %w", err)
	}
	return nil
}

// confirm checks that everything that the manifest names exists and that no sweep has given notice of it. A sweep that
// gives notice later finds the claim or the manifest. The usual reason for a notice is that the parent was removed
// meanwhile; then the error says so. The data key is put in place before, again if a sweep deletes it: it is that of
// the lineage, so it may be about to go with another snapshot that nothing else is needed of.
func (w *Writer) confirm(ctx context.Context, claim *claim, m *Manifest) error {
	namespace, packs := w.key.Namespace, objectsOf(m)
	if m.DataKey != nil {
		key := format.KeyName(namespace, m.DataKey.ID())
		err := claim.outlast(ctx, []string{key}, func() error {
			return w.store.dataKeys.put(ctx, namespace, m.DataKey)
		})
		if err != nil {
			return fmt.Errorf("put the data key in place: %w", err)
		}
		packs = slices.DeleteFunc(packs, func(name string) bool { return name == key })
	}
	err := claim.intact(ctx, packs)
	if err == nil {
		return nil
	}
	return errors.Join(err, w.checkParent(ctx))
}

// intact returns an error unless objects exist and will stay. The claim must be laid to them.
func (c *claim) intact(ctx context.Context, objects []string) error {
	found, _, err := c.condemned(ctx, objects)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s and %d more are being swept", ErrUnavailable, found[0], len(found)-1)
	}
	var group errgroup.Group
	group.SetLimit(checks)
	for _, name := range objects {
		group.Go(func() error {
			_, err := c.objects.backend.Stat(ctx, name)
			if errors.Is(err, ErrNotFound) {
				return fmt.Errorf("%s has been swept meanwhile: %w", name, err)
			}
			return err
		})
	}
	return group.Wait()
}

func (w *Writer) checkParent(ctx context.Context) error {
	if w.lineage.parent == nil {
		return nil
	}
	switch same, err := w.store.holds(ctx, w.lineage.parent); {
	case err != nil:
		return fmt.Errorf("look for the parent %s: %w", w.lineage.parent.Meta.Key, err)
	case !same:
		return fmt.Errorf("the parent %s was removed meanwhile: %w", w.lineage.parent.Meta.Key, ErrNotFound)
	}
	return nil
}

// retract deletes a manifest that must not stay. As long as the manifest may still exist, its packs stay.
func (w *Writer) retract(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	err := w.store.objects.backend.Delete(ctx, format.ManifestName(w.key))
	if err == nil || errors.Is(err, ErrNotFound) {
		w.manifest = manifestAbsent
		return nil
	}
	return fmt.Errorf("take the manifest back: %w", err)
}

// confirmTimeout bounds requests that must be made even after the caller's context has ended.
const confirmTimeout = 10 * time.Second

// createManifest creates the manifest object. If an error leaves open whether the object was made, createManifest
// looks: the bytes are unique to this writer, because its packs' ids are random.
func (w *Writer) createManifest(ctx context.Context, m *Manifest, data []byte) error {
	w.manifest = manifestUnknown
	err := w.store.objects.backend.Create(ctx, format.ManifestName(w.key), bytes.NewReader(data), int64(len(data)))
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrInvalidName) {
		w.manifest = manifestAbsent
		return err
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	same, lookErr := w.store.holds(look, m)
	switch {
	case lookErr != nil:
		return errors.Join(err, fmt.Errorf("and whether the manifest exists is not known: %w", lookErr))
	case same:
		return nil
	case errors.Is(err, ErrExists):
		w.manifest = manifestAbsent
	}
	return err
}
