package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
)

// TestUnreadableRecordsAreBounded: the journal keeps the invalid records that were set aside last, however old their
// contents are. A record that is damaged now is kept, even if it was written before all of them.
func TestUnreadableRecordsAreBounded(t *testing.T) {
	_, dir := journaltest.New(t)
	aside := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%04d", i)+journal.UnreadableSuffix) }
	for i := range journal.KeptUnreadable + 20 {
		write(t, aside(i), time.Unix(int64(1000+i), 0))
	}
	write(t, path(dir, "damaged"), time.Unix(1, 0))
	for range 2 { // the second time there is nothing to remove
		journaltest.Open(t, dir)
		left, err := filepath.Glob(filepath.Join(dir, "*"+journal.UnreadableSuffix))
		if err != nil || len(left) != journal.KeptUnreadable {
			t.Fatalf("%d files, %v", len(left), err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "damaged"+journal.UnreadableSuffix)); err != nil {
		t.Errorf("the one that was just set aside: %v", err)
	}
	if _, err := os.Stat(aside(20)); err == nil {
		t.Error("one is kept that was set aside before")
	}
	if _, err := os.Stat(aside(21)); err != nil {
		t.Errorf("the oldest of the others: %v", err)
	}
}

// TestRecordIsBounded: a record keeps the beginning of a text that is too long.
func TestRecordIsBounded(t *testing.T) {
	j, dir := journaltest.New(t)
	r := journaltest.Record(1, journal.StageFailed)
	r.Error = "a" + strings.Repeat("\u00e4", 1<<20)
	journaltest.Put(t, j, r)
	kept := journaltest.Read(t, j, dir)[0].Error
	if len(kept) > 5000 || !strings.HasPrefix(r.Error, strings.TrimSuffix(kept, " ...")) {
		t.Errorf("%d bytes, the last are %q", len(kept), kept[len(kept)-10:])
	}
	if len(r.Error) < 1<<20 {
		t.Error("the caller's record was changed")
	}
}

// write writes a file that is not a record, and was last written at a time.
func write(t *testing.T, path string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte("not a record"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}
