package agent

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// endIfHopeless ends a request whose replication failed with err, and would again each time, and tells the cluster. The
// error is then ErrNeverReplicated; otherwise it is err.
func (a *Agent) endIfHopeless(ctx context.Context, rec *journal.Record, err error) error {
	why := a.hopeless(ctx, rec.Key, err)
	if why == "" {
		return err
	}
	rec.Stage, rec.Error = journal.StageFailed, why
	if err := a.journal.Put(rec); err != nil {
		a.log.Error("the journal could not be written; it is tried again", "request", rec.ID, "error", err)
		rec.Stage = journal.StageSpooled // the next attempt ends as this one did
		return err
	}
	a.lagging.ended(rec)
	a.changed(rec)
	return fmt.Errorf("%w: %w", errkind.ErrNeverReplicated, err)
}

// hopeless returns why a replication that failed with err would fail again each time; "" if it may succeed.
func (a *Agent) hopeless(ctx context.Context, k snapshot.Key, err error) (why string) {
	switch {
	case errors.Is(err, storage.ErrExists):
		return err.Error()
	case !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrSource):
		return ""
	}
	there, err := a.spool.Has(ctx, k)
	switch {
	case err != nil:
		return ""
	case !there:
		return "removed from the spool before it was replicated"
	}
	return a.distrust(ctx, k)
}

// distrust reads a snapshot in the spool whole. If that finds damage it marks all snapshots that this hurts, so that no
// checkpoint takes over what is damaged, and returns a description. A disk that does not answer is no damage.
func (a *Agent) distrust(ctx context.Context, k snapshot.Key) (reason string) {
	m, err := a.spool.Manifest(ctx, k)
	if err == nil {
		err = a.spool.Verify(ctx, m, storage.VerifyOptions{ReadData: true})
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
	if err := a.markUsers(ctx, k, reason, found); err != nil {
		a.log.Error("damaged snapshots are not marked as such", "snapshot", k.String(), "error", err)
	}
	return reason
}

// markUsers marks a snapshot in the spool, and all others that name the same damaged objects.
func (a *Agent) markUsers(ctx context.Context, k snapshot.Key, reason string, damaged []*storage.CorruptError) error {
	objects := make([]string, len(damaged))
	for i, d := range damaged {
		objects[i] = d.Object
	}
	users, err := a.spool.Users(ctx, k.Namespace, objects...)
	errs := []error{err, a.spool.MarkDamaged(ctx, k, reason)}
	for _, u := range users {
		if u != k {
			a.log.Error("a snapshot on this node shares what is damaged of another", "snapshot", u.String(), "other", k.String())
			errs = append(errs, a.spool.MarkDamaged(ctx, u, "it has data in common with another one: "+reason))
		}
	}
	return errors.Join(errs...)
}
