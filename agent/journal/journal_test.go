package journal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
)

// path returns the path of a request's record.
func path(dir, id string) string { return filepath.Join(dir, id+".json") }

func TestJournalKeepsRecords(t *testing.T) {
	j, dir := journaltest.New(t)
	two, one := journaltest.Record(2, journal.StagePaused), journaltest.Record(1, journal.StageFailed)
	one.Error = "no\x00 luck"
	journaltest.Put(t, j, two, one)
	two.Stage, two.Stop, two.Stopped = journal.StageSpooled, true, true
	journaltest.Put(t, j, two)
	if got, want := journaltest.Read(t, j, dir), []*journal.Record{one, two}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestJournalPassesOverDamage: the journal ignores files that a crash or a person may leave in it.
func TestJournalPassesOverDamage(t *testing.T) {
	j, dir := journaltest.New(t)
	good := journaltest.Record(1, journal.StageSpooled)
	journaltest.Put(t, j, good)
	whole, err := os.ReadFile(path(dir, good.ID))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty.json": "", "torn.json": string(whole[:len(whole)/2]), "zeros.json": strings.Repeat("\x00", 4096),
		"list.json": "[]",
		"time.json": `{"id":"x","created":"yesterday"}`, "0002.json.tmp": string(whole), "note": "not of the journal",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "directory.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".0003.json123"), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := journaltest.Read(t, j, dir); len(got) != 1 || !reflect.DeepEqual(got[0], good) {
		t.Errorf("got %+v, want %+v", got, good)
	}
	for _, name := range []string{"0002.json.tmp", ".0003.json123"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

func TestJournalPrunes(t *testing.T) {
	j, dir := journaltest.New(t)
	owed := journaltest.Record(0, journal.StageSpooled)
	journaltest.Put(t, j, owed)
	for i := range journal.KeptRecords + 3 { // as Put does, without its syncs
		r := journaltest.Record(i+1, []journal.Stage{journal.StageFailed, journal.StageReplicated}[i%2])
		if err := os.WriteFile(path(dir, r.ID),
			fmt.Appendf(nil, `{"id":%q,"stage":%q,"created":%q}`, r.ID, r.Stage, r.Created.Format(time.RFC3339)),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	j = journaltest.Open(t, dir)
	left := journaltest.Read(t, j, dir)
	if len(left) != journal.KeptRecords+1 || left[0].ID != owed.ID || left[1].ID != "0004" {
		t.Errorf("%d records left, the first are %+v, %+v", len(left), left[0], left[1])
	}
	for i := range 5 { // without a restart
		journaltest.Put(t, j, journaltest.Record(journal.KeptRecords+10+i, journal.StageReplicated))
	}
	if left = journaltest.Read(t, j, dir); len(left) != journal.KeptRecords+1 || left[0].ID != owed.ID ||
		left[1].ID != "0009" {
		t.Errorf("%d records left, the first are %+v, %+v", len(left), left[0], left[1])
	}
	// It is the oldest, but it has just ended: its requester has not heard yet.
	journaltest.Put(t, j, journaltest.Record(0, journal.StageReplicated))
	if left = journaltest.Read(t, j, dir); len(left) != journal.KeptRecords || left[0].ID != owed.ID {
		t.Errorf("%d records left, the first is %+v", len(left), left[0])
	}
}

// TestJournalOfALongLife: after 10,000 snapshots the journal is as large as after 1,000. Reading from it every few
// seconds reads no file.
func TestJournalOfALongLife(t *testing.T) {
	_, dir := journaltest.New(t)
	for i := range 10_000 { // as Put does, without its syncs
		b, err := json.Marshal(journaltest.Record(i, journal.StageReplicated))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path(dir, fmt.Sprintf("%04d", i)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := journaltest.Open(t, dir)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != journal.KeptRecords {
		t.Errorf("%d files, %v", len(files), err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if n, timelines := len(j.Records()), len(j.Timelines()); n != journal.KeptRecords || timelines != n {
		t.Errorf("%d records, %d timelines", n, timelines)
	}
	if got := j.Timeline("uid9999"); len(got) != 1 {
		t.Errorf("the newest: %+v", got)
	}
}

func TestJournalTimelines(t *testing.T) {
	j, _ := journaltest.New(t)
	r := journaltest.Record(1, journal.StageReplicated)
	r.UID, r.Timeline = "u", []snapshot.Stage{{Name: "capture", Took: time.Millisecond}}
	journaltest.Put(t, j, r)
	r.Timeline[0].Name = "changed" // the record belongs to the caller: the journal has a copy
	if got := j.Timelines(); got["u"][0].Name != "capture" || len(got["other"]) > 0 {
		t.Errorf("got %+v", got)
	}
	if one, none := j.Timeline("u"), j.Timeline("other"); len(one) != 1 || none != nil {
		t.Errorf("got %+v and %+v", one, none)
	}
}

// TestJournalUnwritable: if a new record cannot be written, the old one stays whole.
func TestJournalUnwritable(t *testing.T) {
	j, dir := journaltest.New(t)
	r := journaltest.Record(1, journal.StageAccepted)
	journaltest.Put(t, j, r)
	away := dir + "-away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	changed := *r
	changed.Stage = journal.StageReplicated
	if err := j.Put(&changed); err == nil || !strings.Contains(err.Error(), r.ID) {
		t.Errorf("put: %v", err)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	if got := journaltest.Read(t, j, dir); len(got) != 1 || !reflect.DeepEqual(got[0], r) {
		t.Errorf("got %+v", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","key":{"namespace":"n","name":"s"},"stage":"paused","created":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, dir := journaltest.New(t)
		if err := os.WriteFile(path(dir, "x"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		again := journaltest.Open(t, dir)
		for _, r := range again.Records() {
			r.Ended()
		}
	})
}

// TestJournalLosesNoRequestInSilence: if a record is damaged, Lost returns its request, and the file is kept.
func TestJournalLosesNoRequestInSilence(t *testing.T) {
	j, dir := journaltest.New(t)
	for i := range 3 {
		journaltest.Put(t, j, journaltest.Record(i+1, journal.StagePaused))
	}
	for id, content := range map[string]string{"0001": "", "0002": `{"id": "0003"}`} {
		if err := os.WriteFile(path(dir, id), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j = journaltest.Open(t, dir)
	lost := slices.Sorted(slices.Values(j.Lost()))
	if want := []string{"0001", "0002"}; !slices.Equal(lost, want) {
		t.Errorf("lost %q, want %q", lost, want)
	}
	for _, id := range lost {
		if _, err := os.Stat(filepath.Join(dir, id+journal.UnreadableSuffix)); err != nil {
			t.Error(err)
		}
	}
	if all := j.Records(); len(all) != 1 || all[0].ID != "0003" {
		t.Errorf("records %+v", all)
	}
}

// TestJournalOfAnotherVersion: the journal reads records of an earlier agent, which have no format, and records with
// fields that this agent does not know. A record in a newer format is lost to this agent, and its file stays as it is.
func TestJournalOfAnotherVersion(t *testing.T) {
	_, dir := journaltest.New(t)
	const newer = `{"format":2,"id":"newer","stage":"paused","meaning":"unknown"}`
	for id, content := range map[string]string{
		"earlier": `{"id":"earlier","stage":"paused","created":"2026-01-02T03:04:05Z"}`,
		"similar": `{"format":1,"id":"similar","stage":"spooled","created":"2026-01-02T03:04:06Z","more":["x"]}`,
		"newer":   newer,
	} {
		if err := os.WriteFile(path(dir, id), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := journaltest.Open(t, dir)
	all := j.Records()
	if len(all) != 2 || all[0].ID != "earlier" || all[0].Stage != journal.StagePaused || all[1].ID != "similar" {
		t.Errorf("records %+v", all)
	}
	if !slices.Equal(j.Lost(), []string{"newer"}) {
		t.Errorf("lost %q", j.Lost())
	}
	if b, err := os.ReadFile(path(dir, "newer")); err != nil || string(b) != newer {
		t.Errorf("the newer record: %q, %v", b, err)
	}
	journaltest.Put(t, j, all[0])
	if b, err := os.ReadFile(path(dir, "earlier")); err != nil || !strings.Contains(string(b), `"format": 1`) {
		t.Errorf("written again: %q, %v", b, err)
	}
}
