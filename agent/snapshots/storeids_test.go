package snapshots

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/place"
	"diapause.dev/storage"
)

// identified opens the stores of a node, and returns why its own store cannot be opened, or nil.
func identified(t *testing.T, o Options) error {
	t.Helper()
	o.Opened, o.Logger = func() {}, journaltest.Quiet
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), "")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return err
}

// TestStoreNotMounted: if a known store is not mounted, the agent makes no new store in its place. It does not take
// another store for it either.
func TestStoreNotMounted(t *testing.T) {
	mount, away := madeStore(t), filepath.Join(t.TempDir(), "away")
	c := Options{Store: "dir:" + mount, StateDir: t.TempDir()}
	for range 2 { // the first time its identity is recorded
		if err := identified(t, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(mount, away); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	err := identified(t, c)
	if !errors.Is(err, storage.ErrIdentity) || !errors.Is(err, storage.ErrUnavailable) ||
		!strings.Contains(err.Error(), "mount it") {
		t.Errorf("not mounted: %v", err)
	}
	if left, err := os.ReadDir(mount); err != nil || len(left) != 0 {
		t.Errorf("made at the mount point: %v, %v", left, err)
	}
	if _, made, err := place.MakeStore(t.Context(), c.Store, false); err != nil || !made { // another one
		t.Fatal(made, err)
	}
	err = identified(t, c)
	if !errors.Is(err, storage.ErrIdentity) {
		t.Errorf("another store: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(c.StateDir, "stores", "*"))
	if len(files) != 1 || !strings.Contains(err.Error(), files[0]) {
		t.Fatalf("the error does not say what to do: %v, files %q", err, files)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := identified(t, c); err != nil {
		t.Errorf("as the error says: %v", err)
	}
}

// madeStore returns a directory with a store.
func madeStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, made, err := place.MakeStore(t.Context(), "dir:"+dir, false); err != nil || !made {
		t.Fatal(made, err)
	}
	return dir
}

// TestStoreNotMade: the agent makes no store by itself where one may be mounted. Where a store is, no second one is
// made.
func TestStoreNotMade(t *testing.T) {
	mount, state := t.TempDir(), t.TempDir()
	c := Options{Store: "dir:" + mount, StateDir: state}
	want := "mount it, or make one with diapause-agent make-store --store=" + c.Store
	if err := identified(t, c); !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if left, err := os.ReadDir(mount); err != nil || len(left) != 0 {
		t.Errorf("made at the mount point: %v, %v", left, err)
	}
	first, made, err := place.MakeStore(t.Context(), c.Store, false)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if again, made, err := place.MakeStore(t.Context(), c.Store, false); err != nil || made || again != first {
		t.Errorf("made %t again: %s, it was %s, %v", made, again, first, err)
	}
	if err := identified(t, c); err != nil {
		t.Errorf("when it was made: %v", err)
	}
	if err := identified(t, Options{Store: "dir:" + state + "/own", StateDir: state}); err != nil {
		t.Errorf("beside its own state: %v", err)
	}
}

// TestStoreConfigured: a configured identity is required from the first start on.
func TestStoreConfigured(t *testing.T) {
	mount := filepath.Join(t.TempDir(), "store")
	c := Options{Store: "dir:" + mount, StateDir: t.TempDir(), StoreID: "expected"}
	if err := identified(t, c); !errors.Is(err, storage.ErrIdentity) || !strings.Contains(err.Error(), "--store-id") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(mount); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
}

// TestStoreRecordDamaged: if the record of a store cannot be read, the store is not opened.
func TestStoreRecordDamaged(t *testing.T) {
	c := Options{Store: "dir:" + madeStore(t), StateDir: t.TempDir()}
	ids := &storeIDs{dir: filepath.Join(c.StateDir, "stores")}
	if err := ids.record(c.Store, "one"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ids.path(c.Store), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := identified(t, c); err == nil || !strings.Contains(err.Error(), ids.path(c.Store)) {
		t.Errorf("got %v", err)
	}
}
