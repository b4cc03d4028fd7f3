package tools

import (
	"context"
	"encoding/json"
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

func TestExtraOnlyForWhoAsks(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := Bin{Root: root}.groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	extras := []Extra{Kubernetes, KubeProxy, S3, Helm, promtool, azurite}
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

// TestNames: Clean knows all groups, and each knows which programs it has.
func TestNames(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := Bin{Root: root}.groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got, programs []string
	for _, g := range groups {
		got = append(got, g.name)
		programs = append(programs, g.programs()...)
	}
	if !slices.Equal(got, names) {
		t.Errorf("Clean removes %q, and the groups are %q", names, got)
	}
	want := []string{
		"runsc", RunscFast, "containerd", "ctr", "etcd", "kubelet", "kube-proxy", fakeGCSServer, VersityGW, GoFakeS3,
		string(Helm), promtool, azurite,
	}
	for _, name := range want {
		if !slices.Contains(programs, name) {
			t.Errorf("no group has %s, of %q", name, programs)
		}
	}
}

func TestCopyIsKnown(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	writeFile(t, from, "content")
	if err := copyFile(from, to); err != nil {
		t.Fatal(err)
	}
	if !sameCopy(from, to) {
		t.Error("a copy is not known as one")
	}
	if err := os.Chtimes(from, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if sameCopy(from, to) {
		t.Error("a program that was built again is taken for the copy of the old one")
	}
}

// TestAzuriteLock: each package of azurite has a digest, and no address.
func TestAzuriteLock(t *testing.T) {
	var lock struct {
		Packages map[string]struct {
			Integrity, Resolved string
			Link                bool
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "azurite/package-lock.json")), &lock); err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, p := range lock.Packages {
		if strings.HasPrefix(name, "node_modules/") && !p.Link {
			if n++; !strings.HasPrefix(p.Integrity, "sha512-") || p.Resolved != "" {
				t.Errorf("%s: digest %q, address %q", name, p.Integrity, p.Resolved)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d packages", n)
	}
}
