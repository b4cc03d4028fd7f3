package snapshots

import (
	"errors"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// TestReadersShare: restores of one snapshot share its reader. The last release closes it.
func TestReadersShare(t *testing.T) {
	a := newRig(t, nil)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	put(t, a.stores.spool, k)
	rs := a.readers
	if rs.Using(k) {
		t.Error("nobody has opened it")
	}
	one, err := rs.Open(t.Context(), ID{Key: k}, "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := rs.Open(t.Context(), one.ID, "")
	if err != nil || two != one {
		t.Fatalf("another reader: %v", err)
	}
	rs.Retain(one)
	calls := 0
	for range 2 {
		one.PrefetchOnce(func() { calls++ })
	}
	if calls != 1 || !one.OnNode {
		t.Errorf("read ahead %d times, on the node: %v", calls, one.OnNode)
	}
	for range 2 {
		if rs.Release(one); !rs.Using(k) || isClosed(one) {
			t.Error("closed while it is used")
		}
	}
	if rs.Release(one); rs.Using(k) || !isClosed(one) {
		t.Error("not closed by the last one")
	}
	again, err := rs.Open(t.Context(), ID{Key: k}, "")
	if err != nil || again == one {
		t.Errorf("a reader that is closed is shared: %v", err)
	}
	rs.Release(again)
}

func isClosed(s *Reader) bool {
	select {
	case <-s.released:
		return true
	default:
		return false
	}
}

// TestReadersRefuse: a restore reads the snapshot that was chosen, or fails.
func TestReadersRefuse(t *testing.T) {
	a := newRig(t, nil)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	put(t, a.stores.spool, k)
	for _, c := range []struct {
		what     string
		id       ID
		location string
		want     error
	}{
		{"another", ID{Key: k, UID: "another"}, "", errkind.ErrReplaced},
		{"not there", ID{Key: snapshot.Key{Namespace: "n", Name: "other"}}, "", storage.ErrNotFound},
		{"no store", ID{Key: k}, "tape:1", errkind.ErrInvalid},
		// This case is the last one: from here on restores without a location ask this store, too.
		{"store's away", ID{Key: snapshot.Key{Namespace: "n", Name: "other"}}, "dir:/dev/null/away", storage.ErrUnavailable},
	} {
		if _, err := a.readers.Open(t.Context(), c.id, c.location); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
