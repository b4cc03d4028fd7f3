package install

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestPlaceProgram(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "bin", "dst")
	write(t, src, "one", 0o644)
	place := func() bool {
		t.Helper()
		changed, err := placeProgram(src, dst)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	if !place() {
		t.Error("a program that was not there is said to be unchanged")
	}
	if place() {
		t.Error("the same program is said to be changed")
	}
	if fi, err := os.Stat(dst); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v; want 0755", fi.Mode(), err)
	}
	if err := os.Chmod(dst, 0o644); err != nil {
		t.Fatal(err)
	}
	if !place() {
		t.Error("a program that cannot be executed is said to be unchanged")
	}
}

// TestReplaceLeavesOldFile: a process that has the old file open keeps it, as one that runs it would. No other file
// is left beside the new one.
func TestReplaceLeavesOldFile(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(dir, "dst")
	write(t, dst, "old", 0o755)
	old, err := os.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	write(t, src, "new", 0o644)
	if changed, err := placeProgram(src, dst); !changed || err != nil {
		t.Fatalf("placeProgram = %v, %v", changed, err)
	}
	buf := make([]byte, 8)
	if n, _ := old.Read(buf); string(buf[:n]) != "old" {
		t.Errorf("the old file holds %q now", buf[:n])
	}
	if got := read(t, dst); got != "new" {
		t.Errorf("the new file holds %q", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "dst", "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replace(filepath.Join(dir, "dst"), bytes.NewReader([]byte("x")), 0o755); err == nil {
		t.Error("a directory was replaced")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	l, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir); err == nil {
		t.Error("two hold the lock")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = lock(dir); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func write(t *testing.T, path, content string, perm os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), perm); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRunscBuilds: each build is installed as runsc, and the next one takes its place.
func TestRunscBuilds(t *testing.T) {
	o := options(t)
	for _, name := range append(programs, "runsc-fast") {
		write(t, filepath.Join(o.Programs, name), name, 0o755)
	}
	for build, want := range map[string]string{"": "runsc-fast", RunscStock: "runsc", RunscFast: "runsc-fast"} {
		o.Runsc = build
		if err := errors.Join(o.validate(), o.placePrograms()); err != nil {
			t.Fatal(err)
		}
		if got := read(t, o.host(o.Dir, "bin", "runsc")); got != want {
			t.Errorf("the build %q is %s, want %s", build, got, want)
		}
	}
	if o.Runsc = "other"; o.validate() == nil {
		t.Error("a build that does not exist is taken")
	}
}
