package snapshots

import (
	"context"
	"errors"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
)

// Bounds of a hold. holdRefresh is far shorter than the grace of a sweep.
const (
	holdTime    = time.Minute // limit for each request to a store
	holdRefresh = 10 * time.Minute
)

// hold keeps the packs that a reader reads in their store until released is closed, even if a node removes the snapshot
// meanwhile. If the agent ends first, the hold stays in the store: the next agent serves the sandboxes that are still
// loading.
func (rs *Readers) hold(s *Reader) {
	at := s.Far
	if s.OnNode {
		at = rs.stores.spool
	}
	if at == nil {
		return
	}
	rs.life.Go(func() {
		err := rs.holdAt(at, s.Manifest, s.released)
		if err != nil && !errors.Is(err, errkind.ErrStopping) {
			rs.log.Warn("snapshot not held", "snapshot", s.Manifest.Meta.Key.String(), "store", at.Backend().Location(), "error",
				err)
		}
	})
}

func (rs *Readers) holdAt(at *storage.Store, m *storage.Manifest, released <-chan struct{}) error {
	h, err := within(rs.life.Context(), func(ctx context.Context) (*storage.Hold, error) { return at.Hold(ctx, m) })
	if err != nil {
		return err
	}
	tick := time.NewTicker(holdRefresh)
	defer tick.Stop()
	for {
		select {
		case <-rs.life.Context().Done():
			return context.Cause(rs.life.Context())
		case <-released:
			_, err := within(rs.life.Context(), func(ctx context.Context) (any, error) { return nil, h.Release(ctx) })
			return err
		case <-tick.C:
		}
		_, err := within(rs.life.Context(), func(ctx context.Context) (any, error) { return nil, h.Refresh(ctx) })
		if err != nil {
			rs.log.Warn("hold not refreshed; it is retried", "snapshot", m.Meta.Key.String(), "error", err)
		}
	}
}

// within calls do with a limit of holdTime.
func within[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	return do(ctx)
}
