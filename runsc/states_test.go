package runsc

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRemoveTorn: what runsc has written of a container stays if it is whole, or of another sandbox.
func TestRemoveTorn(t *testing.T) {
	root := t.TempDir()
	files := map[string]string{
		"whole_sandbox:s.state": `{"id": "whole"}`, "whole_sandbox:s.lock": "", "half_sandbox:s.state": `{"id": "ha`,
		"empty_sandbox:s.state": "", "empty_sandbox:other.state": "", "empty_sandbox:s.state.old": "",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveTorn(root, "s"); err != nil {
		t.Fatal(err)
	}
	delete(files, "half_sandbox:s.state")
	delete(files, "empty_sandbox:s.state")
	left, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if want := slices.Sorted(maps.Keys(files)); !slices.Equal(names, want) {
		t.Errorf("left: %q, want %q", names, want)
	}
	if err := RemoveTorn(filepath.Join(root, "none"), "s"); err == nil {
		t.Error("no error without the directory")
	}
}
