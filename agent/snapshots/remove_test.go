package snapshots

import (
	"context"
	"errors"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// removals is a cluster that is asked to remove snapshots.
type removals struct {
	Cluster
	store string // the store that it names
	known bool
	err   error
	asked int
}

func (r *removals) Remove(context.Context, snapshot.Key) (bool, error) {
	r.asked++
	return r.known, r.err
}

func (r *removals) Stores(context.Context) ([]string, error) { return []string{r.store}, nil }

func (r *removals) Referred(ctx context.Context) ([]string, error) { return r.Stores(ctx) }

// put writes an empty snapshot into a store.
func put(t *testing.T, s *storage.Store, k snapshot.Key) {
	t.Helper()
	w, err := s.NewWriter(t.Context(), k, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{Key: k, UID: "u"}); err != nil {
		t.Fatal(err)
	}
}

// TestRemoveAsksTheCluster: the node removes nothing before it has asked the cluster.
func TestRemoveAsksTheCluster(t *testing.T) {
	cluster := &removals{store: "dir:" + madeStore(t)}
	a, k := newRig(t, cluster), snapshot.Key{Namespace: "n", Name: "s"}
	put(t, a.stores.spool, k)
	s, err := a.stores.Everywhere(t.Context())
	if err != nil || len(s) != 2 || s[1].Backend().Location() != cluster.store {
		t.Errorf("the cluster's store is not one of the agent's: %v, %v", s, err)
	}
	for i, c := range []struct {
		known bool
		err   error
		there bool // afterwards
	}{
		{false, errkind.ErrClusterAway, true},
		{true, errkind.ErrElsewhere, true},
		{true, nil, true}, // the cluster removes it
		{false, nil, false},
	} {
		cluster.known, cluster.err = c.known, c.err
		if err := a.catalog.Delete(t.Context(), k); !errors.Is(err, c.err) {
			t.Errorf("case %d: %v", i, err)
		}
		if there, err := a.stores.spool.Has(t.Context(), k); err != nil || there != c.there || cluster.asked != i+1 {
			t.Errorf("case %d: it is there: %v, %v; asked %d times", i, there, err, cluster.asked)
		}
	}
}

// TestRemoveReplaced: if another snapshot has taken the name, a removal of the old one leaves it in the store and in
// the spool.
func TestRemoveReplaced(t *testing.T) {
	a := newRig(t, nil)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	far, err := a.stores.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	put(t, far, k)
	put(t, a.stores.spool, k)
	m, err := a.stores.spool.Manifest(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{m.Meta.UID + "-before", m.Meta.UID} {
		err := errors.Join(a.catalog.Forget(t.Context(), k, uid), a.catalog.Remove(t.Context(), k, uid, ""))
		if err != nil {
			t.Error(err)
		}
		for _, s := range []*storage.Store{far, a.stores.spool} {
			if there, err := s.Has(t.Context(), k); err != nil || there != (uid != m.Meta.UID) {
				t.Errorf("removal of UID %q of %q: it is there: %t, %v", uid, m.Meta.UID, there, err)
			}
		}
	}
}
