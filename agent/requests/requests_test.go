package requests_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/requests"
)

func TestNewID(t *testing.T) {
	a, b := requests.NewID(8), requests.NewID(8)
	if len(a) != 16 || a == b {
		t.Errorf("ids %q and %q", a, b)
	}
}

// TestHostileRequest checks that the request ID of a sidecar cannot lead to a path outside the directory.
func TestHostileRequest(t *testing.T) {
	d := requests.Dir(t.TempDir())
	for _, bad := range []string{"", ".", "..", "../x", "a/b", "/", "/etc", "a/..", "a/"} {
		if path, err := d.File(bad, "file"); !errors.Is(err, errkind.ErrInvalid) {
			t.Errorf("request %q: %q, %v", bad, path, err)
		}
	}
	if path, err := d.File("0123456789abcdef", "file"); err != nil ||
		path != filepath.Join(d.Path("0123456789abcdef"), "file") {
		t.Errorf("%q, %v", path, err)
	}
}

// TestOlderThan checks that OlderThan returns only directories that have not changed recently.
func TestOlderThan(t *testing.T) {
	d := requests.Dir(t.TempDir())
	for _, request := range []string{"new", "old"} {
		if err := os.Mkdir(d.Path(request), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.Path("old"), before, before); err != nil {
		t.Fatal(err)
	}
	if old, err := d.OlderThan(time.Minute); err != nil || !slices.Equal(old, []string{"old"}) {
		t.Errorf("old: %q, %v", old, err)
	}
	if err := d.Remove("old"); err != nil {
		t.Fatal(err)
	}
	if all, err := d.All(); err != nil || !slices.Equal(all, []string{"new"}) {
		t.Errorf("all: %q, %v", all, err)
	}
	if _, err := requests.Dir("/does/not/exist").All(); err == nil {
		t.Error("no error")
	}
}
