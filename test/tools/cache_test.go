package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestCacheDir(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ cache, xdg, home, want string }{
		"named":        {"/a/b", "/x", "/h", "/a/b"},
		"user's cache": {"", "/x", "/h", "/x/diapause"},
		"home":         {"", "", "/h", "/h/.cache/diapause"},
		"no home":      {"", "", "", filepath.Join(root, ".cache/tools")},
	} {
		t.Setenv(Cache, c.cache)
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		t.Setenv("HOME", c.home)
		if got, err := CacheDir(); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, c.want)
		}
	}
}

func TestCacheDirIsAbsolute(t *testing.T) {
	t.Setenv(Cache, "built")
	_, err := CacheDir()
	if err == nil || !strings.Contains(err.Error(), Cache+"=built") || !strings.Contains(err.Error(), "begins with /") {
		t.Errorf("got %v, want an error that names the variable and says what is right", err)
	}
	if _, err := ensureAll(t.Context(), nil); err == nil {
		t.Error("programs are built nevertheless")
	}
}

// TestClean: all that builds have left goes, and nothing else does.
func TestClean(t *testing.T) {
	var builds atomic.Int32
	cache := t.TempDir()
	t.Setenv(Cache, cache)
	for _, name := range names {
		g := newGroup(t, &builds)
		g.name = name
		if err := os.Mkdir(ensure(t, g, cache)+".part-ABC23", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "file")
	writeFile(t, elsewhere, "")
	link := filepath.Join(cache, "runsc-0123456789ac")
	if err := os.Symlink(filepath.Dir(elsewhere), link); err != nil {
		t.Fatal(err)
	}
	others := []string{"file", "other-0123456789ab/p", "runsc-0123456789ab", "runsc-new/p", "runsc/p"}
	for _, name := range others {
		writeFile(t, filepath.Join(cache, name), "")
	}
	if err := Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"file", "other-0123456789ab", "runsc", "runsc-0123456789ab", "runsc-0123456789ac", "runsc-new"}
	if got := list(t, cache); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	for _, path := range append(others, elsewhere) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(cache, path)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestCleanOfWhatIsAllOurs(t *testing.T) {
	var builds atomic.Int32
	cache := filepath.Join(t.TempDir(), "cache")
	t.Setenv(Cache, cache)
	if err := Clean(t.Context()); err != nil {
		t.Errorf("of no directory: %v", err)
	}
	g := newGroup(t, &builds)
	g.name = names[0]
	ensure(t, g, cache)
	if err := Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cache); !os.IsNotExist(err) {
		t.Errorf("the directory: %v, want none", err)
	}
}

// TestRemovedLock: a lock that Clean has removed, after a process had opened its file, is not one that others see.
func TestRemovedLock(t *testing.T) {
	cache := t.TempDir()
	lock, err := lockGroup(t.Context(), cache, "runsc")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if !seen(lock) {
		t.Error("a lock is not seen")
	}
	if err := os.Remove(lock.Path()); err != nil {
		t.Fatal(err)
	}
	if seen(lock) {
		t.Error("a lock that was removed is seen")
	}
	next, err := lockGroup(t.Context(), cache, "runsc")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if seen(lock) || !seen(next) {
		t.Errorf("the removed lock is seen: %t, the next one: %t", seen(lock), seen(next))
	}
}
