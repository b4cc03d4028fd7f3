package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// spoolDamage finds damage in a node's spool, and marks the snapshots that have it.
type spoolDamage struct {
	spool *storage.Store
	log   *slog.Logger
}

// hopeless returns why a retry of a replication that failed with err must fail, too, or "" if a retry may succeed.
func (d *spoolDamage) hopeless(ctx context.Context, k snapshot.Key, err error) (why string) {
	switch {
	case errors.Is(err, storage.ErrExists):
		return err.Error()
	case !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrSource):
		return ""
	}
	there, err := d.spool.Has(ctx, k)
	switch {
	case err != nil:
		return ""
	case !there:
		return "removed from the spool before it was replicated"
	}
	return d.distrust(ctx, k)
}

// distrust reads a whole snapshot in the spool. If it finds damage, it returns a description and marks all snapshots
// that use the damaged objects, so that no checkpoint reuses damaged data. An error of the disk itself does not count
// as damage.
func (d *spoolDamage) distrust(ctx context.Context, k snapshot.Key) (reason string) {
	m, err := d.spool.Manifest(ctx, k)
	if err == nil {
		err = d.spool.Verify(ctx, m, storage.VerifyOptions{ReadData: true})
	}
	found := storage.CorruptErrors(err)
	if len(found) == 0 {
		return ""
	}
	reason = fmt.Sprintf("snapshot %s was damaged on this node before it was in the store: %s: %s", k, found[0].Object,
		found[0].Reason)
	if len(found) > 1 {
		reason += fmt.Sprintf(", and %d more", len(found)-1)
	}
	if err := d.markUsers(ctx, k, reason, found); err != nil {
		d.log.Error("damaged snapshots are not marked as such", "snapshot", k.String(), "error", err)
	}
	return reason
}

// markUsers marks a snapshot in the spool as damaged, and all others that name the same damaged objects.
func (d *spoolDamage) markUsers(ctx context.Context, k snapshot.Key, reason string,
	damaged []*storage.CorruptError,
) error {
	objects := make([]string, len(damaged))
	for i, c := range damaged {
		objects[i] = c.Object
	}
	users, err := d.spool.Users(ctx, k.Namespace, objects...)
	errs := []error{err, d.spool.MarkDamaged(ctx, k, reason)}
	for _, u := range users {
		if u != k {
			d.log.Error("a snapshot on this node shares what is damaged of another", "snapshot", u.String(), "other", k.String())
			errs = append(errs, d.spool.MarkDamaged(ctx, u, "it has data in common with another one: "+reason))
		}
	}
	return errors.Join(errs...)
}
