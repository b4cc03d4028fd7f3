package snapshots

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/agent/place"
	"diapause.dev/api/snapshot"
)

// TestCentral: the controller shares buckets with the nodes, and no directory of a disk. It uses a store that is there,
// and makes none in a directory.
func TestCentral(t *testing.T) {
	there, missing := "dir:"+t.TempDir(), "dir:"+filepath.Join(t.TempDir(), "missing")
	if _, _, err := place.MakeStore(t.Context(), there, false); err != nil {
		t.Fatal(err)
	}
	c, err := OpenCentral(Options{Store: there, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for location, want := range map[string]bool{there: false, missing: false, "gs://bucket/prefix": true} {
		if got := c.Shared(location); got != want {
			t.Errorf("%s is shared: %v", location, got)
		}
	}
	k := snapshot.Key{Namespace: "n", Name: "s"}
	if err := c.Remove(t.Context(), Removal{ID: ID{k, "uid"}, From: FromStore, Location: there}); err != nil {
		t.Errorf("remove what is not there: %v", err)
	}
	if err := c.ProbeStore(t.Context(), there); err != nil {
		t.Error(err)
	}
	err = c.Remove(t.Context(), Removal{ID: ID{k, "uid"}, From: FromStore, Location: missing})
	if err == nil || !strings.Contains(err.Error(), "there is no store") {
		t.Errorf("a directory without a store: %v", err)
	}
	if _, err := os.Stat(strings.TrimPrefix(missing, "dir:")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}
