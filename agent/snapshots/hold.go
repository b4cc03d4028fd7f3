package snapshots

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/lifetime"
	"diapause.dev/storage"
)

// Bounds of a hold. holdRefresh is far shorter than the grace of a sweep.
const (
	holdTime    = time.Minute // limit for each request to a store
	holdRefresh = 10 * time.Minute
)

// holder keeps packs in their stores while a life lasts.
type holder struct {
	life *lifetime.Life
	log  *slog.Logger
}

// hold keeps the packs of a snapshot in a store until released is closed, even if a node removes the snapshot
// meanwhile. If the agent ends first, the hold stays in the store: the next agent serves the sandboxes that are still
// loading.
func (hs holder) hold(at *storage.Store, m *storage.Manifest, released <-chan struct{}) {
	hs.life.Go(func() {
		if err := hs.holdUntil(at, m, released); err != nil && !errors.Is(err, errkind.ErrStopping) {
			hs.log.Warn("snapshot not held", "snapshot", m.Meta.Key.String(), "store", at.Backend().Location(), "error", err)
		}
	})
}

func (hs holder) holdUntil(at *storage.Store, m *storage.Manifest, released <-chan struct{}) error {
	h, err := within(hs.life.Context(), func(ctx context.Context) (*storage.Hold, error) { return at.Hold(ctx, m) })
	if err != nil {
		return err
	}
	tick := time.NewTicker(holdRefresh)
	defer tick.Stop()
	for {
		select {
		case <-hs.life.Context().Done():
			return context.Cause(hs.life.Context())
		case <-released:
			_, err := within(hs.life.Context(), func(ctx context.Context) (any, error) { return nil, h.Release(ctx) })
			return err
		case <-tick.C:
		}
		_, err := within(hs.life.Context(), func(ctx context.Context) (any, error) { return nil, h.Refresh(ctx) })
		if err != nil {
			hs.log.Warn("hold not refreshed; it is retried", "snapshot", m.Meta.Key.String(), "error", err)
		}
	}
}

// within calls do with a limit of holdTime.
func within[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	return do(ctx)
}
