package checkpoint

import (
	"log/slog"

	"diapause.dev/agent/journal"
)

// entry is the record of a request under way, and the journal that holds it.
type entry struct {
	journal   *journal.Journal
	unsettled *journal.Unsettled
	changed   func(*journal.Record) // called with each step of the request, in order
	watch     *stopwatch
	log       *slog.Logger
	rec       *journal.Record
	// owing: the journal could not be written, or the sandbox not resumed. cleanUp then adds the request to the unsettled
	// ones.
	owing bool
}

// What happens if the journal cannot be written, by the stage that was to be written:
//
//   - accepted (acceptance.enter and begin): the request is refused.
//   - paused (noteOrFail): the checkpoint fails before the pause.
//   - spooled, failed (noteOrOwe): the request goes on as if the stage had been written. If no later stage could be
//     written either, cleanUp adds the request to the unsettled ones. SettleLoop writes the record from there.
//   - replicated: Replicator.Replicate adds the request to the unsettled ones and still succeeds. SettleLoop first
//     writes spooled. The replicator then finds the snapshot in its store and writes replicated.
//   - failed, because the snapshot can never be replicated: the journal still says spooled. The replicator tries to
//     replicate again, and fails again, until it can write failed.
//
// If the agent dies before the record is written, the next one goes on from the stage in the journal: see settleOne.

// noteOrFail journals a stage. If it returns an error, the caller must not take the step that the stage announces.
func (e *entry) noteOrFail(s journal.Stage) error {
	e.rec.Stage, e.rec.Timeline = s, e.watch.stages
	err := e.journal.Put(e.rec)
	e.changed(e.rec)
	return err
}

// noteOrOwe journals how far the request has come. If that fails, the request still goes on and owes the record: it is
// written later.
func (e *entry) noteOrOwe(s journal.Stage) {
	err := e.noteOrFail(s)
	e.owing = err != nil
	if err != nil {
		e.log.Error("the journal could not be written; it is retried", "error", err)
	}
}

// cleanUp adds the request to Unsettled if work remains for it.
func (e *entry) cleanUp() {
	if e.owing {
		e.unsettled.Add(e.rec)
	}
}

// joinWarnings returns two warnings as one. Either may be empty.
func joinWarnings(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
