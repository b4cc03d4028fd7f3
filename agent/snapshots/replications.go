package snapshots

import (
	"context"
	"fmt"

	"diapause.dev/agent/backlog"
	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
)

// replications are the requests in the journal that have snapshots stored elsewhere.
type replications struct {
	stores  *Stores
	journal *journal.Journal
	backlog *backlog.Backlog
	changed func(*journal.Record)
}

// Detach has the snapshot with this UID be on this node alone: nothing more of it is stored elsewhere. It waits for a
// replication under way; afterwards none begins.
func (c *replications) Detach(ctx context.Context, k snapshot.Key, uid string) error {
	release, err := c.stores.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	for _, r := range c.journal.Where(func(r *journal.Record) bool {
		return r.UID == uid && r.Stage == journal.StageSpooled
	}) {
		r.Stage, r.Error = journal.StageFailed, "it was deleted while its pod slept"
		if err := c.journal.Put(r); err != nil {
			return err
		}
		c.backlog.Ended(r)
		c.changed(r)
	}
	return nil
}

// missing is a request that has replicated a snapshot to a store that no longer has it.
type missing struct {
	*journal.Record
	store string // its location
}

// missing returns such requests for a snapshot of this node's spool.
func (c *replications) missing(ctx context.Context, k snapshot.Key) (all []missing, err error) {
	m, err := c.stores.spool.Manifest(ctx, k)
	if err != nil { // it is not in the spool, or damaged there
		return nil, nil //nolint:nilerr // that is said elsewhere
	}
	for _, r := range c.journal.Where(func(r *journal.Record) bool {
		return r.UID == m.Meta.UID && r.Key == k && r.Stage == journal.StageReplicated
	}) {
		s, err := c.stores.Get(ctx, r.Store)
		if err != nil {
			return nil, err
		}
		if there, err := s.Has(ctx, k); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Backend().Location(), err)
		} else if !there {
			all = append(all, missing{r, s.Backend().Location()})
		}
	}
	return all, nil
}

// resume retries a replication that was given up as hopeless: the repair may have removed the cause.
func (c *replications) resume(ctx context.Context, k snapshot.Key) error {
	m, err := c.stores.spool.Manifest(ctx, k)
	if err != nil {
		return err
	}
	for _, r := range c.journal.Where(func(r *journal.Record) bool {
		return r.UID == m.Meta.UID && r.Key == k &&
			r.Stage == journal.StageFailed
	}) {
		if err := c.again(r); err != nil {
			return err
		}
	}
	return nil
}

// again has the snapshot of a request replicated once more.
func (c *replications) again(r *journal.Record) error {
	r.Stage, r.Error = journal.StageSpooled, ""
	if err := c.journal.Put(r); err != nil {
		return err
	}
	c.changed(r)
	return nil
}
