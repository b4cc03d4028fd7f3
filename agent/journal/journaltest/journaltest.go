// Package journaltest makes journals and records for tests.
package journaltest

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
)

// Quiet is a logger that nobody reads.
var Quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// New returns an empty journal, and its directory.
func New(t *testing.T) (_ *journal.Journal, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "journal")
	return Open(t, dir), dir
}

// Open opens the journal in a directory.
func Open(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, Quiet)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Record returns the i-th record, of snapshot default/s<i>.
func Record(i int, stage journal.Stage) *journal.Record {
	return &journal.Record{
		ID: fmt.Sprintf("%04d", i), UID: fmt.Sprint("uid", i),
		Key: snapshot.Key{Namespace: "default", Name: fmt.Sprint("s", i)},
		Pod: "default/pod", SandboxID: "sandbox", Stage: stage, Created: time.Unix(int64(i), 0).UTC(),
		Timeline: []snapshot.Stage{{Name: "queue", Took: time.Second}},
	}
}

// Put puts records into a journal.
func Put(t *testing.T, j *journal.Journal, recs ...*journal.Record) {
	t.Helper()
	for _, r := range recs {
		if err := j.Put(r); err != nil {
			t.Fatal(err)
		}
	}
}

// Read returns the records of the journal in a directory. They must be on disk as they are in memory.
func Read(t *testing.T, j *journal.Journal, dir string) []*journal.Record {
	t.Helper()
	onDisk, known := Open(t, dir).Records(), j.Records()
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
