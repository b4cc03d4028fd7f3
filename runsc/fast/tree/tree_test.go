package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"diapause.dev/runsc/fast"
)

// gvisor returns the directory of the gVisor that the patches are for, its version, and that of the patches.
func gvisor(t *testing.T) (source, version, patches string) {
	t.Helper()
	expected, err := fast.Expected()
	if err != nil {
		t.Fatal(err)
	}
	// This is the version in go.mod, so nothing is asked of anybody.
	found, err := line(output(t.Context(), "", nil, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", fast.Module))
	if err != nil {
		t.Fatal(err)
	}
	version, source, _ = strings.Cut(found, " ")
	if version != expected.Version {
		t.Fatalf("patches/UPSTREAM names %s, go.mod %s: rehearse, and export", expected.Version, version)
	}
	if patches, err = patchDir(t.Context()); err != nil {
		t.Fatal(err)
	}
	return source, version, patches
}

// TestRoundTrip: patches that were applied as commits and exported are the same, byte for byte, and so is UPSTREAM,
// whatever git is told elsewhere.
func TestRoundTrip(t *testing.T) {
	source, version, patches := gvisor(t)
	t.Setenv("GIT_DIR", filepath.Join(t.TempDir(), "other"))
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("[diff]\n\tnoprefix = true\n\talgorithm = patience\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	dir, exported := filepath.Join(t.TempDir(), "gvisor"), t.TempDir()
	if _, err := edit(t.Context(), dir, source, version, patches); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(exported, "0011-dropped.patch")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := export(t.Context(), dir, exported); err != nil {
		t.Fatal(err)
	}
	if got, want := contents(t, exported), contents(t, patches); !slices.Equal(got, want) {
		t.Error("patches or UPSTREAM are not as exported: run tree edit and tree export, and look at the difference")
	}
	if err := os.WriteFile(filepath.Join(dir, "pkg/state/new.go"), []byte("package state\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := export(t.Context(), dir, exported)
	if err == nil || !strings.Contains(err.Error(), "in no commit") {
		t.Errorf("export of what is in no commit: %v", err)
	}
}

// contents returns the names and contents of the files in a directory.
func contents(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Name(), string(data))
	}
	return all
}

// TestRehearsal: the report says of each patch how it goes with another version, and goes on after one that fails.
func TestRehearsal(t *testing.T) {
	source, version, patches := gvisor(t)
	other, dir := filepath.Join(t.TempDir(), "other"), filepath.Join(t.TempDir(), "rehearsal")
	if err := fast.CopyModule(source, other); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(other, "pkg/sentry/mm/address_space.go"), "setMapUnit(32 << 20)", "setMapUnit(64 << 20)")
	endpoint := filepath.Join(other, "pkg/tcpip/transport/tcp/endpoint_state.go")
	replace(t, endpoint, "package tcp\n", "package tcp\n\n// A line.\n")
	// A line that patch 3 has in its context only.
	loader := filepath.Join(other, "pkg/sentry/pgalloc/save_restore.go")
	replace(t, loader, "leave committed (if opts.", "left committed (if opts.")
	if err := os.Remove(filepath.Join(other, "pkg/sentry/platform/systrap/filters.go")); err != nil {
		t.Fatal(err)
	}
	expected, err := fast.Expected()
	if err != nil {
		t.Fatal(err)
	}
	takeOver(t, expected, source, other, "runsc/specutils/")

	var report strings.Builder
	r := rehearsal{
		expected: expected, before: source, after: other, version: "v2", patches: patches, dir: dir, out: &report,
	}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before: " + version, "after:  v2\n",
		"pkg/sentry/mm/address_space.go: changed\n", "pkg/sentry/platform/systrap/filters.go: gone\n",
		"runsc/specutils/ended.go: gVisor has such a file now\n",
		"restored.patch: fuzzes: it applies at other lines\n",
		"begun.patch: gVisor has it: drop the patch\n",
		"no-memory.patch: fuzzes: a merge of three versions applies it\n",
		"not-32.patch: fails: conflicts in pkg/sentry/mm/address_space.go\n",
		"built.patch: fails: conflicts in pkg/sentry/platform/systrap/filters.go\n",
		"objects.patch: applies\n", "waits-for.patch: applies\n", "first.patch: applies\n",
	} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(report.String())
	}
	if err := r.run(t.Context()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory that is there: %v", err)
	}
	if err := r.build(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "2 patches fail") {
		t.Errorf("build: %v", err)
	}
}

// takeOver has another gVisor's files in a directory be as the patches leave them.
func takeOver(t *testing.T, expected fast.Upstream, source, other, below string) {
	t.Helper()
	patched := filepath.Join(t.TempDir(), "patched")
	if err := fast.Tree(source, patched); err != nil {
		t.Fatal(err)
	}
	for _, f := range expected.Files {
		if !strings.HasPrefix(f.Path, below) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(patched, f.Path))
		if err == nil {
			err = os.WriteFile(filepath.Join(other, f.Path), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// replace replaces a text that a file has once.
func replace(t *testing.T, path, before, after string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || strings.Count(string(data), before) != 1 {
		t.Fatalf("%s has %q %d times: %v", path, before, strings.Count(string(data), before), err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), before, after, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
