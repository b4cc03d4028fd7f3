package storage

import (
	"context"
	"fmt"
)

// Hold keeps a snapshot's objects in a store while somebody reads them, even if the snapshot is removed meanwhile. Its
// methods are not safe for concurrent use.
type Hold struct {
	claim     *claim
	manifests *manifests
	collector *collector
	m         *Manifest
}

// Hold lays a claim to everything that a manifest needs. It fails if some of that is not, or no longer, in the store,
// or is about to be deleted because the snapshot was removed before.
//
// A Hold ends with Release. If the process dies, or a context ends during a call, the claim stays. Sweeps heed a claim
// until it is as old as their grace. So the owner of a long Hold must call Refresh more often than any sweep's grace.
func (s *Store) Hold(ctx context.Context, m *Manifest) (*Hold, error) {
	h := &Hold{
		claim:     s.claims.to(m.Meta.Namespace, objectsOf(m)),
		manifests: s.manifests, collector: s.collector, m: m,
	}
	err := h.claim.lay(ctx)
	if err == nil {
		err = h.check(ctx)
	}
	if err != nil && ctx.Err() == nil { // else the result is unknown: better one claim too many
		h.claim.drop(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("hold snapshot %s: %w", m.Meta.Key, err)
	}
	return h, nil
}

// check returns an error if the snapshot may have been removed before the claim was laid.
func (h *Hold) check(ctx context.Context) error {
	if there, err := h.manifests.holds(ctx, h.m); there || err != nil {
		return err
	}
	return h.claim.intact(ctx, objectsOf(h.m))
}

// Refresh renews the Hold's claim.
func (h *Hold) Refresh(ctx context.Context) error {
	if err := h.claim.renew(ctx); err != nil {
		return fmt.Errorf("hold snapshot %s: %w", h.m.Meta.Key, err)
	}
	return nil
}

// Release ends the Hold. If the snapshot was removed meanwhile, Release deletes the objects that only it needed; with
// credentials that may not delete, it leaves them to the next sweep.
func (h *Hold) Release(ctx context.Context) error {
	if err := h.claim.release(ctx); err != nil {
		return fmt.Errorf("release snapshot %s: %w", h.m.Meta.Key, err)
	}
	if h.claim.mayNotDelete {
		return nil
	}
	there, err := h.manifests.holds(ctx, h.m)
	if err == nil && !there {
		err = h.collector.collect(ctx, h.m.Meta.Namespace, neededBy(h.m))
	}
	if err != nil {
		return fmt.Errorf("release snapshot %s: what it alone needed is left to the next sweep: %w", h.m.Meta.Key, err)
	}
	return nil
}
