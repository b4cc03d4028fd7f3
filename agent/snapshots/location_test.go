package snapshots

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
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

// TestCheckStore: to look whether there is a store makes none.
func TestCheckStore(t *testing.T) {
	dir := t.TempDir()
	location := "dir:" + dir
	if err := CheckStore(t.Context(), Options{Store: location}); err == nil {
		t.Error("there is a store in an empty directory")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("something was made: %v, %v", all, err)
	}
	if _, _, err := MakeStore(t.Context(), location, false); err != nil {
		t.Fatal(err)
	}
	if err := CheckStore(t.Context(), Options{Store: location}); err != nil {
		t.Error(err)
	}
}

// TestCredentials: a bucket is opened with the credentials in its own file. If that cannot be used, the bucket is not
// opened with others.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "theirs.json")
	if err := os.WriteFile(file, []byte(`{"type": "authorized_user"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	a := access{credentials: dir}
	_, err := a.open(t.Context(), "gs://theirs/x")
	if !errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), file) {
		t.Errorf("with a file that cannot be used: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.open(ctx, "gs://others/x"); err == nil || errors.Is(err, storage.ErrDenied) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := Open(t.Context(), Options{Credentials: file}); !errors.Is(err, errkind.ErrInvalid) {
		t.Errorf("a file in place of the directory: %v", err)
	}
}
