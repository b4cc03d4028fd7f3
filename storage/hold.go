package storage

import (
	"context"
	"fmt"
)

// Hold keeps what a snapshot needs in a store while somebody reads it, even if the snapshot is
// removed meanwhile. Its methods are not safe for concurrent use.
type Hold struct {
	claim *claim
	m     *Manifest
}

// Hold lays a claim to all that a manifest needs. It fails if that is not in the store, or no longer,
// or is about to go because the snapshot was removed before.
//
// A Hold ends by Release. A process that dies leaves it, and so does a context that ends in the middle; sweeps heed it
// until it is as old as their grace. For the same reason who holds for long calls Refresh, more often than any sweep's
// grace.
func (s *Store) Hold(ctx context.Context, m *Manifest) (*Hold, error) {
	h := &Hold{claim: s.newClaim(m.Meta.Namespace, m.objects()), m: m}
	err := h.claim.lay(ctx)
	if err == nil {
		err = h.check(ctx)
	}
	if err != nil && ctx.Err() == nil { // else it is not known: better a claim too many
		h.claim.drop(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("hold snapshot %s: %w", m.Meta.Key, err)
	}
	return h, nil
}

// check returns an error if a removal may have come before the claim.
func (h *Hold) check(ctx context.Context) error {
	s := h.claim.store
	if there, err := s.holds(ctx, h.m); there || err != nil {
		return err
	}
	return s.intact(ctx, h.m.Meta.Namespace, h.m.objects())
}

// Refresh makes the Hold young again.
func (h *Hold) Refresh(ctx context.Context) error {
	if err := h.claim.lay(ctx); err != nil {
		return fmt.Errorf("hold snapshot %s: %w", h.m.Meta.Key, err)
	}
	return nil
}

// Release ends the Hold. If the snapshot was removed meanwhile, what it needed goes now.
func (h *Hold) Release(ctx context.Context) error {
	s := h.claim.store
	if err := h.claim.release(ctx); err != nil {
		return fmt.Errorf("release snapshot %s: %w", h.m.Meta.Key, err)
	}
	there, err := s.holds(ctx, h.m)
	if err == nil && !there {
		err = s.collect(ctx, h.m.Meta.Namespace, h.m.needs())
	}
	if err != nil {
		return fmt.Errorf("release snapshot %s: what it alone needed is left to the next sweep: %w", h.m.Meta.Key, err)
	}
	return nil
}
