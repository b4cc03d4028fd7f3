package agent

import (
	"strings"
	"testing"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
)

// TestListWithoutStore lists what the node has, and names the store that cannot be reached.
func TestListWithoutStore(t *testing.T) {
	const away = "dir:/proc/nowhere/store"
	a := newStoring(t, &removals{store: away})
	put(t, a.spool, snapshot.Key{Namespace: "n", Name: "on-node"})
	own, err := a.stores.own.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, own, snapshot.Key{Namespace: "n", Name: "far"})
	resp, err := (&service{Agent: a}).List(t.Context(), &localv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if s := resp.Snapshots; len(s) != 2 || s[0].Name != "far" || s[1].Name != "on-node" || len(resp.Damaged) != 0 {
		t.Errorf("listed %v", resp)
	}
	if u := resp.Unreachable; len(u) != 1 || !strings.Contains(u[0], away) {
		t.Errorf("unreachable: %q", u)
	}
}
