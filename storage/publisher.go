package storage

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// publisher writes the manifest of a new snapshot, once all packs are durable.
type publisher struct {
	key        Key
	lineage    *lineage
	objects    *objects
	manifests  *manifests
	keys       *dataKeys
	claims     *claims
	signingKey ed25519.PrivateKey // or nil

	state manifestState
}

// manifestState says whether the packs of a failed writer may be removed.
type manifestState int

const (
	manifestAbsent  manifestState = iota // this writer has certainly not written it
	manifestUnknown                      // it may exist, or may still be written
	manifestWritten
)

// publish writes the manifest, which makes the snapshot exist. It checks that no sweep has deleted, or is about to
// delete, what the manifest names. The first check is before the manifest is written, so that a snapshot that exists is
// whole even if this process dies the next moment. The second is after, in case a sweep considered the claim too old.
func (p *publisher) publish(ctx context.Context, m *Manifest) error {
	data, err := encode(m, p.signingKey)
	if err != nil {
		return err
	}
	if err := p.checkKeys(m); err != nil {
		return err
	}
	if err := p.checkParent(ctx); err != nil {
		return err
	}
	claim := p.claims.to(p.key.Namespace, objectsOf(m))
	defer claim.drop(ctx)
	if err := claim.lay(ctx); err != nil {
		return err
	}
	if err := p.confirm(ctx, claim, m); err != nil {
		return err
	}
	failpoint.ManifestReady.Hit()
	if err := p.createManifest(ctx, m, data); err != nil {
		return err
	}
	failpoint.ManifestMade.Hit()
	if err := p.confirm(ctx, claim, m); err != nil {
		return errors.Join(err, p.retract(ctx))
	}
	failpoint.SnapshotConfirmed.Hit()
	p.state = manifestWritten
	return nil
}

// checkKeys refuses a snapshot in the clear that could not be read: the key file may have changed since it was begun.
// For an encrypted one, confirm finds that out.
func (p *publisher) checkKeys(m *Manifest) error {
	if m.DataKey != nil {
		return nil
	}
	if err := p.keys.checkPlain(m); err != nil {
		return fmt.Errorf("it was begun without a key: %w", err)
	}
	return nil
}

// confirm checks that everything that the manifest names exists and that no sweep has given notice of it. A sweep that
// gives notice later finds the claim or the manifest. The usual reason for a notice is that the parent was removed
// meanwhile; then the error says so. The data key is put in place before, again if a sweep deletes it: it is that of
// the lineage, so it may be about to go with another snapshot that nothing else is needed of.
func (p *publisher) confirm(ctx context.Context, claim *claim, m *Manifest) error {
	namespace, packs := p.key.Namespace, objectsOf(m)
	if m.DataKey != nil {
		key := format.KeyName(namespace, m.DataKey.ID())
		err := claim.outlast(ctx, []string{key}, func() error {
			return p.keys.put(ctx, namespace, m.DataKey)
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
	return errors.Join(err, p.checkParent(ctx))
}

func (p *publisher) checkParent(ctx context.Context) error {
	if p.lineage.parent == nil {
		return nil
	}
	switch same, err := p.manifests.holds(ctx, p.lineage.parent); {
	case err != nil:
		return fmt.Errorf("look for the parent %s: %w", p.lineage.parent.Meta.Key, err)
	case !same:
		return fmt.Errorf("the parent %s was removed meanwhile: %w", p.lineage.parent.Meta.Key, ErrNotFound)
	}
	return nil
}

// retract deletes a manifest that must not stay. As long as the manifest may still exist, its packs stay.
func (p *publisher) retract(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	err := p.objects.backend.Delete(ctx, format.ManifestName(p.key))
	if err == nil || errors.Is(err, ErrNotFound) {
		p.state = manifestAbsent
		return nil
	}
	return fmt.Errorf("take the manifest back: %w", err)
}

// createManifest creates the manifest object. If an error leaves open whether the object was made, createManifest
// looks: the bytes are unique to this writer, because its packs' ids are random.
func (p *publisher) createManifest(ctx context.Context, m *Manifest, data []byte) error {
	p.state = manifestUnknown
	err := p.objects.backend.Create(ctx, format.ManifestName(p.key), bytes.NewReader(data), int64(len(data)))
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrInvalidName) {
		p.state = manifestAbsent
		return err
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	same, lookErr := p.manifests.holds(look, m)
	switch {
	case lookErr != nil:
		return errors.Join(err, fmt.Errorf("and whether the manifest exists is not known: %w", lookErr))
	case same:
		return nil
	case errors.Is(err, ErrExists):
		p.state = manifestAbsent
	}
	return err
}
