package record

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
)

// TestLedgerKeepsWhatCannotBeRead: an entry that cannot be read is not lost, and is found again once it can. A
// directory in its place is a file that cannot be read.
func TestLedgerKeepsWhatCannotBeRead(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	l, err := openLedger(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	k := snapshot.Key{Namespace: "n", Name: "s"}
	if err := l.Put(Entry{Key: k, Pod: snapshot.PodRef{Name: "p"}, Published: "u"}); err != nil {
		t.Fatal(err)
	}
	path, aside := l.path(k), filepath.Join(dir, "aside")
	if err := os.Rename(path, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if l, err = openLedger(dir, log); err != nil {
		t.Fatal(err)
	}
	if e, ok := l.Get(k); ok {
		t.Errorf("found %+v", e)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("what cannot be read was removed: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	if keys := l.Keys(); len(keys) != 1 || keys[0] != k {
		t.Errorf("found %v", keys)
	}
	if e, ok := l.Get(k); !ok || e.Published != "u" {
		t.Errorf("found %+v, %v", e, ok)
	}
}

// TestLedgerRemovesWhatIsNoEntry: a file that a crash of the machine has damaged is removed.
func TestLedgerRemovesWhatIsNoEntry(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "half.json")
	if err := os.WriteFile(path, []byte("{\"key\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLedger(dir, slog.New(slog.DiscardHandler))
	if err != nil || len(l.Keys()) != 0 {
		t.Fatal(l, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it is still there")
	}
}

// TestLedgerOfAnotherVersion: entries of an earlier agent, which had no format, are read. What a newer agent has
// written in another format is not, and stays as it is.
func TestLedgerOfAnotherVersion(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	l, err := openLedger(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	const newer = `{"format":2,"key":{"namespace":"n","name":"newer"}}`
	earlier := snapshot.Key{Namespace: "n", Name: "earlier"}
	for path, text := range map[string]string{
		l.path(earlier): `{"key":{"namespace":"n","name":"earlier"},"pod":{"Name":"p"},"published":"u","more":1}`,
		l.path(snapshot.Key{Namespace: "n", Name: "newer"}): newer,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if l, err = openLedger(dir, log); err != nil {
		t.Fatal(err)
	}
	if keys := l.Keys(); len(keys) != 1 || keys[0] != earlier {
		t.Errorf("entries %v", keys)
	}
	if b, err := os.ReadFile(l.path(snapshot.Key{Namespace: "n", Name: "newer"})); err != nil || string(b) != newer {
		t.Errorf("the newer one: %q, %v", b, err)
	}
	e, ok := l.Get(earlier)
	if !ok || e.Published != "u" || l.Put(e) != nil {
		t.Errorf("the earlier one: %+v, %v", e, ok)
	}
	if b, err := os.ReadFile(l.path(earlier)); err != nil || !strings.HasPrefix(string(b), `{"format":1,`) {
		t.Errorf("written again: %q, %v", b, err)
	}
}
