package journal_test

import (
	"os"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
)

// TestUnsettledKeepsTheNewest: removing a settled record does not remove a newer one of the same request.
func TestUnsettledKeepsTheNewest(t *testing.T) {
	u := journal.NewUnsettled()
	r := journaltest.Record(1, journal.StagePaused)
	u.Add(r)
	older := u.List()[0]
	if older == r || !u.Has(r.ID) || u.Has("other") {
		t.Errorf("it has %+v", older)
	}
	r.Stage = journal.StageSpooled
	if older.Stage != journal.StagePaused {
		t.Error("a record is shared with whoever added it")
	}
	u.Add(r)
	u.Remove(older)
	if left := u.List(); len(left) != 1 || left[0].Stage != journal.StageSpooled {
		t.Errorf("left: %+v", left)
	}
	u.Remove(u.List()[0])
	if u.Has(r.ID) || len(u.List()) > 0 {
		t.Errorf("left: %+v", u.List())
	}
	u.Remove(older) // it has already been removed
}

// TestLostRecords: a file with the record of another request is lost. Only the first agent that opens the journal
// reports it.
func TestLostRecords(t *testing.T) {
	j, dir := journaltest.New(t)
	journaltest.Put(t, j, journaltest.Record(1, journal.StagePaused), journaltest.Record(2, journal.StagePaused))
	swap(t, path(dir, "0001"), path(dir, "0002"))
	j = journaltest.Open(t, dir)
	if lost := j.Lost(); len(lost) != 2 || len(j.Records()) != 0 {
		t.Errorf("lost: %q, known: %v", lost, j.Records())
	}
	if lost := journaltest.Open(t, dir).Lost(); len(lost) > 0 {
		t.Errorf("lost once more: %q", lost)
	}
}

// TestDrop: the next agent does not find a request that was dropped.
func TestDrop(t *testing.T) {
	j, dir := journaltest.New(t)
	r := journaltest.Record(1, journal.StageAccepted)
	journaltest.Put(t, j, r)
	for range 2 { // the second time there is nothing to drop
		if err := j.Drop(r.ID); err != nil {
			t.Error(err)
		}
	}
	if left := journaltest.Read(t, j, dir); len(left) > 0 || j.Get(r.ID) != nil {
		t.Errorf("left: %+v", left)
	}
}

// TestRequest: a Request has the namespace, name and UID of the pod as separate fields.
func TestRequest(t *testing.T) {
	r := journaltest.Record(1, journal.StageSpooled)
	r.PodUID, r.Stop, r.RunsOn = "p", true, "because"
	q := r.Request()
	if q.Pod.Namespace != "default" || q.Pod.Name != "pod" || q.Pod.UID != "p" || q.SnapshotUID != r.UID || !q.Stop ||
		q.RunsOn != "because" || q.Key != r.Key {
		t.Errorf("%+v", q)
	}
	if r.Ended() || !r.Named() || !journaltest.Record(1, journal.StageFailed).Ended() {
		t.Error("ended or nameless")
	}
}

// swap exchanges two files.
func swap(t *testing.T, a, b string) {
	t.Helper()
	for _, move := range [][2]string{{a, a + "-away"}, {b, a}, {a + "-away", b}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
}
