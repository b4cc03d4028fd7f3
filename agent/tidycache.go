package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"diapause.dev/storage"
)

// tidyEvery is how often the cache is compared with the stores, each of which is listed for that.
const tidyEvery = time.Hour

// forgetDeleted removes from this node's cache what was read of objects that are in no store any more:
// other nodes delete snapshots, too. If any store cannot be listed, everything stays.
func (a *Agent) forgetDeleted(ctx context.Context) error {
	c := a.cache.due()
	if c == nil {
		return nil
	}
	far, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, s := range far {
		err := s.Backend().List(ctx, "", func(o storage.ObjectInfo) error {
			there[o.Name] = true
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", s.Backend().Location(), err)
		}
	}
	if n := c.Retain(maps.Keys(there)); n > 0 {
		a.log.Info("removed from the cache what was deleted in the store", "blocks", n)
	}
	a.cache.tidy()
	return nil
}
