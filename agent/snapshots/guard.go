package snapshots

import (
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// Guard sets what says which pod needs a snapshot: one that sleeps, and is nowhere else. It returns "" for none. It
// must be called before the first removal, and at most once.
func (c *Catalog) Guard(needed func(k snapshot.Key, uid string) (pod string)) { c.needed = needed }

// guard returns an error if a pod that sleeps needs the snapshot with this UID; if uid is empty, any with the key.
func (c *Catalog) guard(k snapshot.Key, uid string) error {
	if c.needed == nil {
		return nil
	}
	if pod := c.needed(k, uid); pod != "" {
		return fmt.Errorf("remove snapshot %s: %w: pod %s sleeps, and is woken from it: wake or delete the pod first", k,
			errkind.ErrInUse, pod)
	}
	return nil
}
