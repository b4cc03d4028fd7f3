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
		if err := a.catalog.Remove(t.Context(), Removal{ID: ID{Key: k}, From: FromEverywhere}); !errors.Is(err, c.err) {
			t.Errorf("case %d: %v", i, err)
		}
		if there, err := a.stores.spool.Has(t.Context(), k); err != nil || there != c.there || cluster.asked != i+1 {
			t.Errorf("case %d: it is there: %v, %v; asked %d times", i, there, err, cluster.asked)
		}
	}
}
