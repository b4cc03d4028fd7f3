package integration

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestStoreCommands sums up, verifies in parts, empties and sweeps the spool and the store of a node.
func TestStoreCommands(t *testing.T) {
	n := start(t)
	pod := n.workload("counter", "serve", "--mib", "16")
	n.serving(pod) // its memory is filled
	n.checkpoint("--name", "one", pod.ID)
	var stats struct {
		Stores []struct {
			Identity                                                  string
			Spool                                                     bool
			Snapshots, Packs                                          int64
			RawBytes, PackBytes, UnreferencedPacks, UnreferencedBytes int64
		}
	}
	stat := func() {
		t.Helper()
		out := strings.ReplaceAll(n.mustCLI("store", "stat", "--output", "json"), "_", "")
		if err := json.Unmarshal([]byte(out), &stats); err != nil || len(stats.Stores) != 2 || !stats.Stores[0].Spool ||
			stats.Stores[1].Spool {
			t.Fatalf("%v: %s", err, out)
		}
	}
	stat()
	for _, s := range stats.Stores {
		if s.Snapshots != 1 || s.Packs == 0 || s.RawBytes < 16<<20 || s.PackBytes == 0 || s.UnreferencedPacks != 0 {
			t.Errorf("%+v", s)
		}
	}
	for _, part := range []string{"1/2", "2/2"} {
		n.mustCLI("verify", "--read-data-subset="+part, "one")
	}
	if out := n.mustCLI("doctor"); !strings.Contains(out, stats.Stores[1].Identity) || stats.Stores[1].Identity == "" {
		t.Errorf("doctor does not show which store it is, %q: %s", stats.Stores[1].Identity, out)
	}
	n.mustCLI("rm", "one")
	if stat(); stats.Stores[0].Packs != 0 || stats.Stores[1].Packs != 0 {
		t.Errorf("after rm: %+v", stats.Stores)
	}
	n.checkpoint("--name", "two", pod.ID)
	for _, manifest := range n.glob("default/snapshots/two/manifest") { // as if the agent had died in an rm
		if err := os.Remove(manifest); err != nil {
			t.Fatal(err)
		}
	}
	stat()
	packs := stats.Stores[1].UnreferencedPacks
	if stats.Stores[1].Snapshots != 0 || packs == 0 {
		t.Errorf("without the manifest: %+v", stats.Stores[1])
	}
	if out := n.mustCLI("gc", "--dry-run", "--grace", "0s"); strings.Count(out, "would delete dir:") < int(packs) {
		t.Errorf("gc --dry-run does not name the %d packs: %s", packs, out)
	}
	n.mustCLI("gc", "--grace", "0s")
	if stat(); stats.Stores[0].Packs != 0 || stats.Stores[1].Packs != 0 {
		t.Errorf("after gc: %+v", stats.Stores)
	}
}
