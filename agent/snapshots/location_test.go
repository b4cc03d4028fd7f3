package snapshots

import (
	"errors"
	"testing"

	"diapause.dev/agent/errkind"
)

// TestMayMake: an agent makes no store in a directory that may be a mount point.
func TestMayMake(t *testing.T) {
	o := &Options{StateDir: "/state"}
	for location, ok := range map[string]bool{
		"gs://bucket": true, DefaultStore: true, "dir:/state/store": true, "dir:/state/../mnt": false, "dir:/mnt": false,
		"dir:/stateful": false,
	} {
		if o.mayMake(location) != ok {
			t.Errorf("%q: %v", location, !ok)
		}
	}
}

// TestMakeStore: a store is made once, and keeps its identity.
func TestMakeStore(t *testing.T) {
	location := "dir:" + t.TempDir() + "/store"
	first, made, err := MakeStore(t.Context(), location, false)
	if err != nil || !made || first == "" {
		t.Errorf("%q, %v, %v", first, made, err)
	}
	if again, made, err := MakeStore(t.Context(), location, false); err != nil || made || again != first {
		t.Errorf("once more: %q, %v, %v", again, made, err)
	}
	if _, _, err := MakeStore(t.Context(), "tape:1", false); !errors.Is(err, errkind.ErrInvalid) {
		t.Errorf("no location: %v", err)
	}
}
