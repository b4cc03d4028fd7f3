package dir_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/storagetest"
	"diapause.dev/test/privileged"
)

// tiny mounts a file system of 1 MiB. It needs root.
func tiny(t *testing.T) string {
	t.Helper()
	privileged.Need(t, "a mount of tmpfs")
	path := t.TempDir()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	})
	return path
}

// wantEmpty checks that no file is left, not even a temporary one.
func wantEmpty(t *testing.T, path string) {
	t.Helper()
	err := filepath.Walk(path, func(name string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Name() != "diapause.json" {
			t.Errorf("left behind: %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNoSpace(t *testing.T) {
	path := tiny(t)
	b := open(t, path)
	data := storagetest.Bytes(1, 2<<20)
	if err := b.Create(t.Context(), "a/b", bytes.NewReader(data), int64(len(data))); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("create: %v", err)
	}
	if err := b.Replace(t.Context(), "a/b", data); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("replace: %v", err)
	}
	wantEmpty(t, path)
	if err := b.Create(t.Context(), "a/b", bytes.NewReader(data[:1000]), 1000); err != nil {
		t.Errorf("a small one: %v", err)
	}
}

func TestWriterNoSpace(t *testing.T) {
	path := tiny(t)
	s := storagetest.OpenStore(t, open(t, path))
	key := storage.Key{Namespace: "ns", Name: "large"}
	w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := w.File("pages.img").Chunk(storagetest.Bytes(uint64(i), storage.MaxChunk)); err != nil &&
			!errors.Is(err, storage.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{}); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("commit: %v", err)
	}
	wantEmpty(t, path)
	key.Name = "small"
	m := storagetest.Write(t, s, key, nil, storagetest.SmallImage(1))
	storagetest.WantImage(t, m, storagetest.SmallImage(1), s)
}

func TestDeadWriters(t *testing.T) {
	path := t.TempDir()
	open(t, path)
	temp := filepath.Join(path, ".tmp")
	old, tree, young := filepath.Join(temp, "old"), filepath.Join(temp, "tree"), filepath.Join(temp, "young")
	if err := os.Mkdir(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{old, filepath.Join(tree, "object"), young} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{old, tree} {
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, path)
	for _, name := range []string{old, tree} {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one: %v", err)
	}
	err := b.List(t.Context(), "", func(o storage.ObjectInfo) error { return errors.New("listed " + o.Name) })
	if err != nil {
		t.Error(err)
	}
}

// TestSymlink: a symbolic link in the directory leads nowhere outside it.
func TestSymlink(t *testing.T) {
	outside, path := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, path)
	if err := os.Symlink(outside, filepath.Join(path, "ns")); err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(t.Context(), "ns/secret", make([]byte, 6), 0); err == nil {
		t.Error("read through the link")
	}
	if err := b.Delete(t.Context(), "ns/secret"); err == nil {
		t.Error("deleted through the link")
	}
	if err := b.Create(t.Context(), "ns/new", bytes.NewReader(nil), 0); err == nil {
		t.Error("created through the link")
	}
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made")
	b := open(t, path)
	if err := b.Create(t.Context(), "a/b", bytes.NewReader(nil), 0); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": 0o700, ".tmp": 0o700, "a": 0o700, "a/b": 0o600} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Open(file); err == nil {
		t.Error("opened a file")
	}
}
