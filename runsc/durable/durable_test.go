package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.json")
	for _, content := range []string{"one", "", "three"} {
		if err := Replace(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("%q, %v, want %q", b, err, content)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := Replace(filepath.Join(dir, "missing", "f"), nil); err == nil {
		t.Error("a file in a directory that does not exist")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestClean(t *testing.T) {
	dir := t.TempDir()
	names := map[string]bool{"f.json": true, ".hidden": true, "f1": true, ".f.json123": false, "f.json.tmp": false}
	for name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clean(dir); err != nil {
		t.Error(err)
	}
	for name, stays := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 {
		if err := Remove(filepath.Join(dir, "f1")); err != nil {
			t.Error(err)
		}
	}
}
