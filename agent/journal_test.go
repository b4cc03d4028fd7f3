package agent

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newJournal(t *testing.T) *journal {
	t.Helper()
	j, err := openJournal(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func recordOf(i int, stage Stage) *record {
	return &record{
		ID: fmt.Sprintf("%04d", i), UID: fmt.Sprint("uid", i), Key: snapshot.Key{Namespace: "default", Name: fmt.Sprint("s", i)},
		Pod: "default/pod", SandboxID: "sandbox", Stage: stage, Created: time.Unix(int64(i), 0).UTC(),
		Timeline: []snapshot.Stage{{Name: "queue", Took: time.Second}},
	}
}

func mustPut(t *testing.T, j *journal, recs ...*record) {
	t.Helper()
	for _, r := range recs {
		if err := j.put(r); err != nil {
			t.Fatal(err)
		}
	}
}

func mustRead(t *testing.T, j *journal) []*record {
	t.Helper()
	recs, err := j.records(quiet)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

func TestJournalKeepsRecords(t *testing.T) {
	j := newJournal(t)
	two, one := recordOf(2, StagePaused), recordOf(1, StageFailed)
	one.Error = "no\x00 luck"
	mustPut(t, j, two, one)
	two.Stage, two.Stop, two.Stopped = StageSpooled, true, true
	mustPut(t, j, two)
	again, err := openJournal(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := mustRead(t, again), []*record{one, two}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestJournalPassesOverDamage leaves in a journal what a crash or a person may.
func TestJournalPassesOverDamage(t *testing.T) {
	j := newJournal(t)
	good := recordOf(1, StageSpooled)
	mustPut(t, j, good)
	whole, err := os.ReadFile(j.path(good.ID))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty.json": "", "torn.json": string(whole[:len(whole)/2]), "zeros.json": strings.Repeat("\x00", 4096), "list.json": "[]",
		"time.json": `{"id":"x","created":"yesterday"}`, "0002.json.tmp": string(whole), "note": "not of the journal",
	} {
		if err := os.WriteFile(filepath.Join(j.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(j.dir, "directory.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, j); len(got) != 1 || !reflect.DeepEqual(got[0], good) {
		t.Errorf("got %+v, want %+v", got, good)
	}
}

func TestJournalPrunes(t *testing.T) {
	j := newJournal(t)
	owed := recordOf(0, StageSpooled)
	all := []*record{owed}
	for i := range keptRecords + 3 {
		all = append(all, recordOf(i+1, []Stage{StageFailed, StageReplicated}[i%2]))
	}
	for _, r := range all { // as put does, without its syncs
		if err := os.WriteFile(j.path(r.ID), []byte(fmt.Sprintf(`{"id":%q,"stage":%q,"created":%q}`, r.ID, r.Stage, r.Created.Format(time.RFC3339))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.prune(mustRead(t, j)); err != nil {
		t.Fatal(err)
	}
	left := mustRead(t, j)
	if len(left) != keptRecords+1 || left[0].ID != owed.ID || left[1].ID != "0004" {
		t.Errorf("%d records left, the first are %+v, %+v", len(left), left[0], left[1])
	}
}

func TestJournalTimelines(t *testing.T) {
	j := newJournal(t)
	r := recordOf(1, StageReplicated)
	r.UID, r.Timeline = "u", []snapshot.Stage{{Name: "capture", Took: time.Millisecond}}
	mustPut(t, j, r)
	if got := j.timelines(quiet); !slices.Equal(got["u"], r.Timeline) || len(got["other"]) > 0 {
		t.Errorf("got %+v", got)
	}
}

// TestJournalUnwritable wants the old record whole when a new one cannot be written.
func TestJournalUnwritable(t *testing.T) {
	j := newJournal(t)
	r := recordOf(1, StageAccepted)
	mustPut(t, j, r)
	if err := os.Mkdir(j.path(r.ID)+".tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	changed := *r
	changed.Stage = StageReplicated
	if err := j.put(&changed); err == nil || !strings.Contains(err.Error(), r.ID) {
		t.Errorf("put: %v", err)
	}
	if got := mustRead(t, j); len(got) != 1 || !reflect.DeepEqual(got[0], r) {
		t.Errorf("got %+v", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","key":{"namespace":"n","name":"s"},"stage":"paused","created":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		j := newJournal(t)
		if err := os.WriteFile(j.path("x"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, r := range mustRead(t, j) {
			r.ended()
		}
	})
}
