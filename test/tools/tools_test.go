package tools

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLinkIsACopyOfItsOwn(t *testing.T) {
	bin := Bin{Root: t.TempDir(), Dir: t.TempDir()}
	writeFile(t, bin.Path("gvisor-bin/sidecar"), "old")
	linked, err := bin.Link(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "sidecar")
	writeFile(t, fresh, "new")
	if err := relink(fresh, bin.Path("gvisor-bin/sidecar")); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, linked.Path("gvisor-bin/sidecar")); got != "old" {
		t.Errorf("the copy changed with the original: %q", got)
	}
	if got := readFile(t, bin.Path("gvisor-bin/sidecar")); got != "new" {
		t.Errorf("the original is still %q", got)
	}
}

func TestCopyWhereNoLinkCanBe(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	writeFile(t, from, "content")
	if err := copyFile(from, to); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, to); got != "content" {
		t.Errorf("got %q", got)
	}
	if err := copyFile(from, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("onto what is there: %v, want %v", err, os.ErrExist)
	}
}

func TestLockedWaitsNoLongerThanTheContext(t *testing.T) {
	bin := Bin{Root: t.TempDir()}
	err := bin.locked(t.Context(), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return bin.locked(ctx, func() error { return errors.New("locked twice") })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestKeyNamesAllThatGoesIn(t *testing.T) {
	module := t.TempDir()
	writeFile(t, filepath.Join(module, "go.mod"), "module m\n")
	writeFile(t, filepath.Join(module, "go.sum"), "")
	base := group{module: module, packages: []string{"p"}}
	seen := map[string]string{}
	check := func(name string, g group) {
		t.Helper()
		key, err := g.key()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[key] = name
	}
	check("base", base)
	check("other flags", group{module: module, packages: base.packages, ldflags: "-s"})
	check("other package", group{module: module, packages: []string{"q"}})
	check("given source", group{module: module, packages: base.packages, source: "m v1"})
	writeFile(t, filepath.Join(module, "go.sum"), "m v2 h1:\n")
	check("other go.sum", base)
}

// TestBuildThatFails shows that a build cut short is not taken for a whole one.
func TestBuildThatFails(t *testing.T) {
	cache, module := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(module, "go.mod"), "module m\n\ngo 1.26.3\n")
	writeFile(t, filepath.Join(module, "go.sum"), "")
	writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() { none() }\n")
	g := group{name: "broken", module: module, packages: []string{"."}}
	if _, err := g.ensure(t.Context(), cache); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("got %v, want the compiler's word", err)
	}
	writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() {}\n")
	dir, err := g.ensure(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory of the second build holds %v, %v", entries, err)
	}
}

func TestRenamedProgram(t *testing.T) {
	module := t.TempDir()
	writeFile(t, filepath.Join(module, "go.mod"), "module m/name\n\ngo 1.26.3\n")
	writeFile(t, filepath.Join(module, "go.sum"), "")
	writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() {}\n")
	g := group{name: "renamed", module: module, packages: []string{"."}, renamed: map[string]string{"name": "other"}}
	dir, err := g.ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "other" {
		t.Errorf("there are %v, %v", entries, err)
	}
}

func TestExtraOnlyForWhoAsks(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := Bin{Root: root}.groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	extras := []Extra{Kubernetes, KubeProxy}
	for _, g := range groups {
		extra := slices.Contains(extras, Extra(g.name))
		if g.wanted(nil) == extra || !g.wanted(extras) {
			t.Errorf("%s: wanted by all: %t, by who asks for the extras: %t", g.name, g.wanted(nil), g.wanted(extras))
		}
		if g.name != string(Kubernetes) && extra && g.wanted([]Extra{Kubernetes}) {
			t.Errorf("%s: wanted by who asks for Kubernetes", g.name)
		}
	}
}
