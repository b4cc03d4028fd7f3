package agent

import (
	"encoding/json"
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
	j, err := openJournal(filepath.Join(t.TempDir(), "journal"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func recordOf(i int, stage Stage) *record {
	return &record{
		ID: fmt.Sprintf("%04d", i), UID: fmt.Sprint("uid", i),
		Key: snapshot.Key{Namespace: "default", Name: fmt.Sprint("s", i)},
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
	again, err := openJournal(j.dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	onDisk, known := again.records(), j.records()
	if len(onDisk) != len(known) {
		t.Errorf("%d records on disk, %d in memory", len(onDisk), len(known))
	}
	for i := range min(len(onDisk), len(known)) {
		if !reflect.DeepEqual(onDisk[i], known[i]) {
			t.Fatalf("on disk: %+v, in memory: %+v", onDisk[i], known[i])
		}
	}
	return onDisk
}

func TestJournalKeepsRecords(t *testing.T) {
	j := newJournal(t)
	two, one := recordOf(2, StagePaused), recordOf(1, StageFailed)
	one.Error = "no\x00 luck"
	mustPut(t, j, two, one)
	two.Stage, two.Stop, two.Stopped = StageSpooled, true, true
	mustPut(t, j, two)
	if got, want := mustRead(t, j), []*record{one, two}; !reflect.DeepEqual(got, want) {
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
		"empty.json": "", "torn.json": string(whole[:len(whole)/2]), "zeros.json": strings.Repeat("\x00", 4096),
		"list.json": "[]",
		"time.json": `{"id":"x","created":"yesterday"}`, "0002.json.tmp": string(whole), "note": "not of the journal",
	} {
		if err := os.WriteFile(filepath.Join(j.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(j.dir, "directory.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(j.dir, ".0003.json123"), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, j); len(got) != 1 || !reflect.DeepEqual(got[0], good) {
		t.Errorf("got %+v, want %+v", got, good)
	}
	for _, name := range []string{"0002.json.tmp", ".0003.json123"} {
		if _, err := os.Stat(filepath.Join(j.dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

func TestJournalPrunes(t *testing.T) {
	j := newJournal(t)
	owed := recordOf(0, StageSpooled)
	mustPut(t, j, owed)
	for i := range keptRecords + 3 { // as put does, without its syncs
		r := recordOf(i+1, []Stage{StageFailed, StageReplicated}[i%2])
		if err := os.WriteFile(j.path(r.ID),
			fmt.Appendf(nil, `{"id":%q,"stage":%q,"created":%q}`, r.ID, r.Stage, r.Created.Format(time.RFC3339)),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	j, err := openJournal(j.dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	left := mustRead(t, j)
	if len(left) != keptRecords+1 || left[0].ID != owed.ID || left[1].ID != "0004" {
		t.Errorf("%d records left, the first are %+v, %+v", len(left), left[0], left[1])
	}
	for i := range 5 { // a long life: without a restart
		mustPut(t, j, recordOf(keptRecords+10+i, StageReplicated))
	}
	if left = mustRead(t, j); len(left) != keptRecords+1 || left[0].ID != owed.ID || left[1].ID != "0009" {
		t.Errorf("%d records left, the first are %+v, %+v", len(left), left[0], left[1])
	}
	mustPut(t, j, recordOf(0, StageReplicated)) // the oldest, but whoever asked for it has not heard yet
	if left = mustRead(t, j); len(left) != keptRecords || left[0].ID != owed.ID {
		t.Errorf("%d records left, the first is %+v", len(left), left[0])
	}
}

// TestJournalOfALongLife: after 10,000 snapshots the journal is as large as after 1,000, and whoever
// looks at it every few seconds reads no file.
func TestJournalOfALongLife(t *testing.T) {
	j := newJournal(t)
	for i := range 10_000 { // as put does, without its syncs
		b, err := json.Marshal(recordOf(i, StageReplicated))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(j.path(fmt.Sprintf("%04d", i)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j, err := openJournal(j.dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(j.dir)
	if err != nil || len(files) != keptRecords {
		t.Errorf("%d files, %v", len(files), err)
	}
	if err := os.RemoveAll(j.dir); err != nil {
		t.Fatal(err)
	}
	a := &Agent{log: quiet, journal: j, lagging: newLagging(newMetrics())}
	requests, err := a.Requests()
	if !a.replicateAll(t.Context()) || err != nil || len(requests) != keptRecords || len(j.timelines()) != keptRecords {
		t.Errorf("%d requests, %v", len(requests), err)
	}
	if got := j.timeline("uid9999"); len(got) != 1 {
		t.Errorf("the newest: %+v", got)
	}
}

func TestJournalTimelines(t *testing.T) {
	j := newJournal(t)
	r := recordOf(1, StageReplicated)
	r.UID, r.Timeline = "u", []snapshot.Stage{{Name: "capture", Took: time.Millisecond}}
	mustPut(t, j, r)
	r.Timeline[0].Name = "changed" // it is the caller's
	if got := j.timelines(); got["u"][0].Name != "capture" || len(got["other"]) > 0 {
		t.Errorf("got %+v", got)
	}
	if one, none := j.timeline("u"), j.timeline("other"); len(one) != 1 || none != nil {
		t.Errorf("got %+v and %+v", one, none)
	}
}

// TestJournalUnwritable wants the old record whole when a new one cannot be written.
func TestJournalUnwritable(t *testing.T) {
	j := newJournal(t)
	r := recordOf(1, StageAccepted)
	mustPut(t, j, r)
	away := j.dir + "-away"
	if err := os.Rename(j.dir, away); err != nil {
		t.Fatal(err)
	}
	changed := *r
	changed.Stage = StageReplicated
	if err := j.put(&changed); err == nil || !strings.Contains(err.Error(), r.ID) {
		t.Errorf("put: %v", err)
	}
	if err := os.Rename(away, j.dir); err != nil {
		t.Fatal(err)
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
		again, err := openJournal(j.dir, quiet)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range again.records() {
			r.ended()
		}
	})
}

// TestJournalLosesNoRequestInSilence damages records: their requests are known as lost, and the files kept.
func TestJournalLosesNoRequestInSilence(t *testing.T) {
	j := newJournal(t)
	mustPut(t, j, recordOf(1, StagePaused), recordOf(2, StagePaused), recordOf(3, StagePaused))
	for id, content := range map[string]string{"0001": "", "0002": `{"id": "0003"}`} {
		if err := os.WriteFile(j.path(id), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j, err := openJournal(j.dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(j.lost)
	if want := []string{"0001", "0002"}; !slices.Equal(j.lost, want) {
		t.Errorf("lost %q, want %q", j.lost, want)
	}
	for _, id := range j.lost {
		if _, err := os.Stat(filepath.Join(j.dir, id+unreadableSuffix)); err != nil {
			t.Error(err)
		}
	}
	if all := j.records(); len(all) != 1 || all[0].ID != "0003" {
		t.Errorf("records %+v", all)
	}
}
