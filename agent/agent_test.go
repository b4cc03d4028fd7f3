package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/kube"
)

// openBelow returns the files that this process has open below a directory.
func openBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil && len(name) >= len(dir) && name[:len(dir)] == dir {
			names = append(names, name)
		}
	}
	return names
}

func newConfig(dir string) Config {
	return Config{
		RequestDir: dir + "/requests", StoppedDir: dir + "/stopped", StateDir: dir + "/state",
		Reminders: dir + "/asleep", Past: dir + "/past",
		Store: "dir:" + dir + "/state/store", Containerd: dir + "/containerd.sock", CacheSize: 1 << 20,
		Logger: journaltest.Quiet,
	}
}

// TestNewFails checks that a failed New leaves nothing open, so that a later one can succeed.
func TestNewFails(t *testing.T) {
	dir := t.TempDir()
	none, cancel := context.WithCancel(t.Context())
	cancel() // containerd does not answer
	badCodec, badSpool, badLedger := newConfig(dir), newConfig(dir), newConfig(dir)
	badCodec.Codec = "best"
	badLedger.Cluster = &kube.Config{RestConfig: &rest.Config{}}
	if err := os.MkdirAll(dir+"/state", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg     Config
		prepare func() error
		kind    error
	}{
		"containerd": {newConfig(dir), func() error { return nil }, context.Canceled},
		"codec":      {badCodec, func() error { return nil }, errkind.ErrInvalid},
		"spool":      {badSpool, func() error { return os.WriteFile(dir+"/state/spool", nil, 0o600) }, nil},
		"ledger":     {badLedger, func() error { return os.WriteFile(dir+"/state/kube", nil, 0o600) }, syscall.ENOTDIR},
	} {
		if err := errors.Join(os.RemoveAll(dir+"/state/spool"), c.prepare()); err != nil {
			t.Fatal(err)
		}
		if _, err := New(none, c.cfg); err == nil || c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
		if left := openBelow(t, dir); len(left) > 0 {
			t.Errorf("%s: still open: %q", name, left)
		}
	}
}

// TestNewBesideAnother checks that New changes nothing in a state directory on which another agent works.
func TestNewBesideAnother(t *testing.T) {
	dir := t.TempDir()
	cfg := newConfig(dir)
	cfg.Store = "gs://bucket" // a store with a cache
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := lock(cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if a, err := New(t.Context(), cfg); err == nil {
		t.Error("two agents work on one directory", a.Close())
	}
	entries, err := os.ReadDir(cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"lock"}) {
		t.Errorf("made beside another agent: %q", names)
	}
}
