package backlog

import (
	"errors"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/storage"
)

// TestBacklogReasons: each kind of failure has its name, its count and its advice. A failure is news only if it is the
// first or of another kind than the last.
func TestBacklogReasons(t *testing.T) {
	var counted map[string]int
	b := New(func(n map[string]int) { counted = n })
	r := journaltest.Record(1, journal.StageSpooled)
	for _, c := range []struct {
		err  error
		kind string
	}{
		{storage.ErrDenied, waitDenied},
		{storage.ErrUnavailable, waitUnavailable},
		{storage.ErrNoSpace, waitFull},
		{storage.ErrCorrupt, waitDamaged},
		{errors.New("anything"), waitOther},
	} {
		if !b.Failed(r, c.err) || b.Failed(r, c.err) {
			t.Errorf("%s: is news twice, or not at all", c.kind)
		}
		if len(counted) != 1 || counted[c.kind] != 1 || b.Denied() != (c.kind == waitDenied) {
			t.Errorf("%s: counted %v", c.kind, counted)
		}
		if _, err := b.Check(); err == nil || b.Reason(r.ID) == "" || b.Of(r.UID) != b.Reason(r.ID) {
			t.Errorf("%s: %v", c.kind, err)
		}
	}
	other := journaltest.Record(2, journal.StageSpooled)
	b.Failed(other, storage.ErrDenied)
	if b.Denied() {
		t.Error("one of two is denied")
	}
	b.Ended(r)
	if !b.Denied() || b.Reason(r.ID) != "" || b.Of(r.UID) != "" || counted[waitDenied] != 1 || len(counted) != 1 {
		t.Errorf("once it has ended: %v", counted)
	}
	if b.Ended(other); len(counted) > 0 || b.Denied() {
		t.Errorf("once all have ended: %v", counted)
	}
}
