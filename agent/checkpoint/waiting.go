package checkpoint

import (
	"context"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/journal"
	"diapause.dev/storage"
)

// Waiting returns a function that lists the snapshots that are in the spool and not in their store yet, as the journal
// knows them.
func Waiting(j *journal.Journal, spool *storage.Store) func() []budget.Waiting {
	return func() (out []budget.Waiting) {
		for _, r := range j.Where(func(r *journal.Record) bool { return r.Stage == journal.StageSpooled }) {
			w := budget.Waiting{Namespace: r.Key.Namespace, Bytes: r.Stored}
			if w.Bytes == 0 { // an earlier agent did not note it
				if m, err := spool.Manifest(context.Background(), r.Key); err == nil { // a file on this disk
					w.Bytes = m.Stats().StoredBytes
				}
			}
			out = append(out, w)
		}
		return out
	}
}
