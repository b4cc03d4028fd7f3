package snapshots

import (
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
)

// TestListWithoutStore: List returns every snapshot that can be reached, and names the store that cannot be.
func TestListWithoutStore(t *testing.T) {
	const away = "dir:/proc/nowhere/store"
	a := newRig(t, &removals{store: away})
	put(t, a.stores.spool, snapshot.Key{Namespace: "n", Name: "on-node"})
	put(t, a.own(t), snapshot.Key{Namespace: "n", Name: "far"})
	found, damaged, err := a.catalog.List(t.Context(), "")
	if len(found) != 2 || found[0].Manifest.Meta.Name != "far" || found[1].Manifest.Meta.Name != "on-node" ||
		len(damaged) != 0 {
		t.Errorf("listed %v, damaged %q", found, damaged)
	}
	if err == nil || !strings.Contains(err.Error(), away) {
		t.Errorf("unreachable: %v", err)
	}
}
