package snapshots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/storage"
)

// referring is a cluster that refers to stores.
type referring struct {
	Cluster
	locations []string
	err       error
}

func (r *referring) Stores(context.Context) ([]string, error) { return nil, nil }

func (r *referring) Referred(context.Context) ([]string, error) { return r.locations, r.err }

// remember writes down stores as earlier agents have opened them, in this order, all before now.
func remember(t *testing.T, ids *storeIDs, locations ...string) {
	t.Helper()
	for i, l := range locations {
		if err := ids.record(l, "id"); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(i+1), 0)
		if err := os.Chtimes(ids.path(l), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// unreferred returns n locations to which nothing refers.
func unreferred(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("dir:/unreferred/%04d", i))
	}
	return out
}

// wantRemembered fails unless it is remembered, or not, which store is at a location.
func wantRemembered(t *testing.T, ids *storeIDs, location string, want bool) {
	t.Helper()
	if id, err := ids.expected(location); err != nil || (id != "") != want {
		t.Errorf("at %s: %q, %v", location, id, err)
	}
}

// TestStoresAreForgotten: a node remembers a limited number of stores, those that it opened last. It never forgets a
// store that something refers to, however long ago that was opened.
func TestStoresAreForgotten(t *testing.T) {
	cluster := &referring{locations: []string{"dir:/of/the/cluster"}}
	a := newRig(t, cluster)
	ids := a.stores.own.ids
	old := []string{"dir:/of/the/cluster", "dir:/of/a/request", "dir:/looked/for", "dir:/of/an/ended/request"}
	all := append(old, unreferred(keptStores)...)
	remember(t, ids, all...)
	long := time.Unix(0, 0)
	if err := os.Chtimes(ids.path(a.stores.own.location), long, long); err != nil {
		t.Fatal(err)
	}
	owed, ended := journaltest.Record(1, journal.StageSpooled), journaltest.Record(2, journal.StageReplicated)
	owed.Store, ended.Store = old[1], old[3]
	journaltest.Put(t, a.journal, owed, ended)
	if _, err := a.stores.Get(t.Context(), old[2]); !errors.Is(err, storage.ErrUnavailable) {
		t.Fatalf("it is not mounted: %v", err)
	}
	for range 2 { // the second time there is nothing to forget
		a.evictor.Tidy(t.Context())
		if files, err := ids.files(); err != nil || len(files) != keptStores {
			t.Fatalf("%d stores are remembered, %v", len(files), err)
		}
	}
	for _, location := range append([]string{a.stores.own.location, all[8]}, old[:3]...) {
		wantRemembered(t, ids, location, true)
	}
	for _, location := range []string{old[3], all[4], all[7]} {
		wantRemembered(t, ids, location, false)
	}
}

// TestStoresOfAClusterThatIsAway: while it is not known what the cluster refers to, no store is forgotten.
func TestStoresOfAClusterThatIsAway(t *testing.T) {
	away := errors.New("away")
	a := newRig(t, &referring{err: away})
	remember(t, a.stores.own.ids, unreferred(keptStores+5)...)
	if err := a.stores.forgetStores(t.Context(), a.journal); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
	wantRemembered(t, a.stores.own.ids, unreferred(1)[0], true)
}

// TestStoreIsUsed: opening a store counts as its last use.
func TestStoreIsUsed(t *testing.T) {
	o := Options{Store: "dir:" + madeStore(t), StateDir: t.TempDir()}
	ids := &storeIDs{dir: filepath.Join(o.StateDir, storesDir)}
	long := time.Unix(1, 0)
	for range 2 {
		if err := identified(t, o); err != nil {
			t.Fatal(err)
		}
		files, err := ids.files()
		if err != nil || len(files) != 1 || !files[0].ModTime().After(long) {
			t.Fatalf("files %v, %v", files, err)
		}
		if err := os.Chtimes(ids.path(o.Store), long, long); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTemporaryFilesGo: what interrupted replacements have left in the state directory goes with the next start.
func TestTemporaryFilesGo(t *testing.T) {
	o := Options{Store: "dir:" + madeStore(t), StateDir: t.TempDir()}
	if err := identified(t, o); err != nil {
		t.Fatal(err)
	}
	left := []string{filepath.Join(storesDir, ".0123456789abcdef.json77"), "." + usesFile + "123"}
	for _, f := range left {
		if err := os.WriteFile(filepath.Join(o.StateDir, f), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := identified(t, o); err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if _, err := os.Stat(filepath.Join(o.StateDir, f)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", f, err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(o.StateDir, storesDir, "*.json")); err != nil || len(files) != 1 {
		t.Errorf("the store is remembered by %q, %v", files, err)
	}
}
