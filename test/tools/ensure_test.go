package tools

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// newModule returns a directory with the files of a module named m/name.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module m/name\n\ngo 1.26.3\n")
	writeFile(t, filepath.Join(dir, "go.sum"), "")
	return dir
}

// newGroup returns a group whose build counts itself and writes two programs.
func newGroup(t *testing.T, builds *atomic.Int32) group {
	t.Helper()
	g := group{name: "fake", module: newModule(t), packages: []string{"p/first", "p/second/v2"}}
	g.build = func(_ context.Context, out string) error {
		builds.Add(1)
		for _, name := range g.programs() {
			if err := os.WriteFile(filepath.Join(out, name), []byte(name), 0o755); err != nil {
				return err
			}
		}
		return nil
	}
	return g
}

func ensure(t *testing.T, g group, cache string) string {
	t.Helper()
	dir, err := g.ensure(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// list returns the names of what is in dir.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestKeyNamesAllThatGoesIn(t *testing.T) {
	module := newModule(t)
	base := group{module: module, packages: []string{"p"}}
	key := func(g group) string {
		t.Helper()
		key, err := g.key(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	seen := map[string]string{}
	check := func(name string, g group) {
		t.Helper()
		k := key(g)
		if other, ok := seen[k]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[k] = name
	}
	check("base", base)
	check("other flags", group{module: module, packages: base.packages, ldflags: "-s"})
	check("other package", group{module: module, packages: []string{"q"}})
	check("given source", group{module: module, packages: base.packages, source: "m v1"})
	check("other name", group{module: module, packages: base.packages, renamed: map[string]string{"p": "q"}})
	for _, v := range []struct{ name, value string }{
		{"GOOS", "plan9"},
		{"GOARCH", "arm64"},
		{"GOAMD64", "v3"},
		{"GOEXPERIMENT", "jsonv2"},
		{"GOFIPS140", "latest"},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(v.name, v.value)
			check(v.name, base)
		})
	}
	before := key(base)
	t.Run("GOFLAGS", func(t *testing.T) { // which no build heeds, see TestNobodysOwnFlags
		t.Setenv("GOFLAGS", "-tags=other")
		if key(base) != before {
			t.Error("GOFLAGS changes the key")
		}
	})
	writeFile(t, filepath.Join(module, "go.sum"), "m v2 h1:\n")
	check("other go.sum", base)
	writeFile(t, filepath.Join(module, "go.mod"), "module m/name\n\ngo 1.26.2\n")
	check("other go.mod", base)
}

// TestFastDigest: a change of any source that changes gVisor's is another runsc-fast.
func TestFastDigest(t *testing.T) {
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "go.mod"), "module m\n\ngo 1.26.3\n")
	files := map[string]string{
		"runsc/fast/tree/main.go": "package main\n\nimport _ \"m/runsc/fast\"\n\nfunc main() {}\n",
		"runsc/fast/fast.go":      "package fast\n\nimport \"embed\"\n\n//go:embed patches\nvar _ embed.FS\n",
		"runsc/fast/patches/a.go": "package a\n",
	}
	for name, content := range files {
		writeFile(t, filepath.Join(root, name), content)
	}
	seen := map[string]string{}
	check := func(name string) {
		t.Helper()
		digest, err := fastDigest(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[digest]; ok {
			t.Errorf("%s changed: the digest is as for %s", name, other)
		}
		seen[digest] = name
	}
	check("nothing")
	for name, content := range files {
		writeFile(t, filepath.Join(root, name), content+"// changed\n")
		check(name)
	}
}

// TestFastDigestElsewhere: it does not depend on where a checkout is, and where other modules are beside it.
func TestFastDigestElsewhere(t *testing.T) {
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	const library = "github.com/bluekeyes/go-gitdiff"
	version := strings.TrimSpace(must(goOutput(t.Context(), "", "list", "-m", "-f", "{{.Version}}", library))(t))
	var digests []string
	for _, root := range []string{t.TempDir(), filepath.Join(t.TempDir(), "deeper", "by", "far")} {
		for name, content := range map[string]string{
			"go.mod":                  "module m\n\ngo 1.26.3\n\nrequire " + library + " " + version + "\n",
			"go.sum":                  string(sums),
			"runsc/fast/tree/main.go": "package main\n\nimport _ \"" + library + "/gitdiff\"\n\nfunc main() {}\n",
		} {
			writeFile(t, filepath.Join(root, name), content)
		}
		digests = append(digests, must(fastDigest(t.Context(), root))(t))
	}
	if digests[0] != digests[1] {
		t.Errorf("one source has the digests %q: checkouts would not share what is built", digests)
	}
}

// must fails the test if there is an error.
func must(s string, err error) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestBuildThatFails shows that a build that fails is not taken for a whole one.
func TestBuildThatFails(t *testing.T) {
	cache, module := t.TempDir(), newModule(t)
	writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() { none() }\n")
	g := group{name: "broken", module: module, packages: []string{"m/name"}}
	if _, err := g.ensure(t.Context(), cache); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("got %v, want the compiler's word", err)
	}
	if left := list(t, cache); !slices.Equal(left, []string{"broken.lock"}) {
		t.Errorf("it leaves %q", left)
	}
	writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() {}\n")
	if got := list(t, ensure(t, g, cache)); !slices.Equal(got, []string{"name"}) {
		t.Errorf("the directory of the repaired build holds %q", got)
	}
}

func TestRenamedProgram(t *testing.T) {
	module := newModule(t)
	writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() {}\n")
	g := group{
		name: "renamed", module: module, packages: []string{"m/name"}, renamed: map[string]string{"name": "other"},
	}
	if got := list(t, ensure(t, g, t.TempDir())); !slices.Equal(got, []string{"other"}) {
		t.Errorf("there are %q", got)
	}
}

// TestNobodysOwnFlags: the programs for all are built without the flags of who builds them.
func TestNobodysOwnFlags(t *testing.T) {
	module := newModule(t)
	writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() {}\n")
	writeFile(t, filepath.Join(module, "own.go"), "//go:build own\n\npackage main\n\nfunc init() { none() }\n")
	t.Setenv("GOFLAGS", "-tags=own")
	ensure(t, group{name: "flags", module: module, packages: []string{"m/name"}}, t.TempDir())
}

// TestPathOfCheckout: the programs are the same wherever the checkout is, byte by byte.
func TestPathOfCheckout(t *testing.T) {
	cache := t.TempDir()
	var programs []string
	for _, name := range []string{"one", "two"} {
		module := newModule(t)
		writeFile(t, filepath.Join(module, "main.go"), "package main\n\nfunc main() { panic(1) }\n")
		g := group{name: name, module: module, packages: []string{"m/name"}}
		programs = append(programs, ensure(t, g, cache)+"/name")
	}
	if readFile(t, programs[0]) != readFile(t, programs[1]) {
		t.Error("two checkouts build two programs of one source")
	}
	one, two := filepath.Base(filepath.Dir(programs[0])), filepath.Base(filepath.Dir(programs[1]))
	if strings.TrimPrefix(one, "one") != strings.TrimPrefix(two, "two") {
		t.Errorf("the keys of two checkouts differ: %s, %s", one, two)
	}
}

// TestTwoAtOnce: of many who need the same programs one builds them, and the others take these.
func TestTwoAtOnce(t *testing.T) {
	var builds atomic.Int32
	cache, g := t.TempDir(), newGroup(t, &builds)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := g.ensure(t.Context(), cache)
			if err != nil {
				t.Error(err)
			} else if name := g.missing(dir); name != "" {
				t.Errorf("%s is missing", name)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("%d builds", n)
	}
}

// TestOthersDoNotWait: who needs a group waits for the builds of no other, and of none if it is built.
func TestOthersDoNotWait(t *testing.T) {
	var builds atomic.Int32
	cache, g, other := t.TempDir(), newGroup(t, &builds), newGroup(t, &builds)
	other.name = "other"
	inner := g.build
	g.build = func(ctx context.Context, out string) error {
		if _, err := other.ensure(ctx, cache); err != nil {
			return err
		}
		return inner(ctx, out)
	}
	ensure(t, g, cache)
	lock, err := lockGroup(t.Context(), cache, g.name)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ensure(t, g, cache)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockGroup(ctx, cache, g.name); !errors.Is(err, context.Canceled) {
		t.Errorf("for the lock of a build under way: %v, want %v", err, context.Canceled)
	}
}

// hang is the environment variable that has TestHang hang in a build, in the directory that it names.
const hang = "DIAPAUSE_TEST_HANG"

// TestHang is the process that TestKilled kills.
func TestHang(t *testing.T) {
	cache := os.Getenv(hang)
	if cache == "" {
		return
	}
	g := group{name: "fake", module: newModule(t), packages: []string{"p"}}
	g.build = func(_ context.Context, out string) error {
		writeFile(t, filepath.Join(out, "p"), "half")
		if _, err := os.Stdout.WriteString("building\n"); err != nil {
			return err
		}
		_, err := os.Stdin.Read(make([]byte, 1)) // until the parent kills this process, or is dead itself
		return err
	}
	ensure(t, g, cache)
}

// TestKilled: a build that is cut short by a kill leaves no programs, and what it leaves goes with a later build of any
// group, though not before it is dead.
func TestKilled(t *testing.T) {
	var builds atomic.Int32
	cache, other := t.TempDir(), newGroup(t, &builds)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHang$")
	cmd.Env = append(os.Environ(), hang+"="+cache)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	parts := func() []string {
		found, err := filepath.Glob(filepath.Join(cache, "fake-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	other.name = "other"
	ensure(t, other, cache)
	if p := parts(); len(p) != 1 || !strings.Contains(p[0], ".part-") {
		t.Errorf("while one builds, there are %q", p)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	other.ldflags = "-other"
	ensure(t, other, cache)
	if p := parts(); len(p) != 0 {
		t.Errorf("of a build that was killed there are %q", p)
	}
}

// TestIncomplete: a directory that has lost a program is built again.
func TestIncomplete(t *testing.T) {
	var builds atomic.Int32
	cache, g := t.TempDir(), newGroup(t, &builds)
	dir := ensure(t, g, cache)
	ensure(t, g, cache)
	if n := builds.Load(); n != 1 {
		t.Errorf("%d builds of what is there", n)
	}
	if err := os.Remove(filepath.Join(dir, "second")); err != nil {
		t.Fatal(err)
	}
	if got := list(t, ensure(t, g, cache)); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("there are %q", got)
	}
	if n := builds.Load(); n != 2 {
		t.Errorf("%d builds after a program went", n)
	}
}

// TestBuildWithoutAProgram: a build that does not make what it is for is an error, not one build after the other.
func TestBuildWithoutAProgram(t *testing.T) {
	cache := t.TempDir()
	g := group{name: "none", module: newModule(t), packages: []string{"p"}}
	g.build = func(context.Context, string) error { return nil }
	if dir, err := g.ensure(t.Context(), cache); err == nil {
		t.Errorf("got %s", dir)
	}
}
