package snapshots

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/keyring"
)

// elsewhere is a backend that is not on a disk of this node.
type elsewhere struct{ storage.Backend }

func (elsewhere) Location() string { return "gs://bucket/prefix" }

// TestHostilePlainByName: encryption is on, and a store elsewhere offers a snapshot that is not encrypted. Whoever
// knows nothing but its name is refused, and learns what to do if it is from before. Who knows its UID gets it, and so
// does everybody from a disk of this node.
func TestHostilePlainByName(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "default"), []byte(strings.Repeat("01", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newRigWith(t, nil, Options{Keys: dir})
	k := snapshot.Key{Namespace: "n", Name: "s"}
	forge(t, a.own(t), k, storage.Options{})
	far, err := storage.Open(t.Context(), elsewhere{a.own(t).Backend()},
		storage.Options{Keyring: keyring.Dir(dir), Logger: journaltest.Quiet})
	if err != nil {
		t.Fatal(err)
	}
	m, err := far.Manifest(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	h := held{manifest: m, stores: []*storage.Store{a.stores.spool, far}}
	if err := h.known(ID{Key: k}); !errors.Is(err, storage.ErrUntrusted) || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("by its name: %v", err)
	}
	if err := h.known(ID{Key: k, UID: "u"}); err != nil {
		t.Errorf("by its UID: %v", err)
	}
	for _, id := range []ID{{Key: k}, {Key: k, UID: "u"}} {
		r, err := a.readers.Open(t.Context(), id, "")
		if err != nil {
			t.Fatalf("on this node's disk, by %+v: %v", id, err)
		}
		a.readers.Release(r)
	}
}
