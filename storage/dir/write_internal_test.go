package dir

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// TestWriteVector writes more pieces than one system call takes, of all lengths.
func TestWriteVector(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var pieces [][]byte
	var want []byte
	for i := range 3*mostPieces + 1 {
		piece := bytes.Repeat([]byte{byte(i)}, i%257)
		pieces, want = append(pieces, piece), append(want, piece...)
	}
	f := &tempFile{ctx: t.Context(), file: file, size: -1}
	n, err := f.WriteVector(pieces)
	if err != nil || n != int64(len(want)) || f.written != n {
		t.Fatalf("WriteVector: %d bytes, written %d, %v; want %d", n, f.written, err, len(want))
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read back %d bytes, %v; want the %d that were written", len(got), err, len(want))
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteVector([][]byte{{1}}); err == nil {
		t.Error("writing to a closed file succeeds")
	}
}

// TestBehind cuts pieces at any place.
func TestBehind(t *testing.T) {
	whole := []byte("abcdefg")
	for n := range len(whole) + 1 {
		pieces := [][]byte{{}, whole[:2:2], {}, whole[2:3:3], whole[3:7], {}}
		if got := bytes.Join(behind(pieces, n), nil); !bytes.Equal(got, whole[n:]) {
			t.Errorf("behind %d bytes: %q, want %q", n, got, whole[n:])
		}
	}
}

// TestPublishBeside publishes objects while their directories are constantly made and removed. All, some or none of the
// directories above exist.
func TestPublishBeside(t *testing.T) {
	b := openTemp(t)
	var others sync.WaitGroup
	done := make(chan struct{})
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = b.root.Remove("a/packs")
				_ = b.root.Remove("a")
				_ = b.root.MkdirAll("a/packs", dirMode)
			}
		}
	})
	defer others.Wait()
	defer close(done)
	for range 20_000 {
		if err := b.publish("temp", "a/packs/one", b.root.Link); err != nil {
			t.Fatal(err)
		}
		if err := b.root.Remove("a/packs/one"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPublishTogether publishes from several goroutines into one directory. Each of them removes it whenever it can.
func TestPublishTogether(t *testing.T) {
	b := openTemp(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprintf("a/packs/%d", i)
			for range 2_000 {
				if err := b.publish("temp", name, b.root.Link); err != nil {
					t.Error(err)
					return
				}
				if err := b.root.Remove(name); err != nil {
					t.Error(err)
					return
				}
				_ = b.root.Remove("a/packs")
				_ = b.root.Remove("a")
			}
		})
	}
	all.Wait()
	left, err := fs.ReadDir(b.root.FS(), tempDir)
	if err != nil || len(left) != 0 {
		t.Errorf("%d left in %s, %v", len(left), tempDir, err)
	}
}

// TestPublishTree checks what publishTree returns for each state of the directories.
func TestPublishTree(t *testing.T) {
	for _, c := range []struct {
		about, dirs, file string
		want              error
	}{
		{about: "nothing there"},
		{about: "the upper empty", dirs: "a"},
		{about: "both empty", dirs: "a/packs"},
		{about: "the upper not empty", dirs: "a/other"},
		{about: "the upper not empty, the lower empty", dirs: "a/packs", file: "a/other"},
		{about: "both not empty", dirs: "a/packs", file: "a/packs/other", want: fs.ErrExist},
		{about: "the object is there", dirs: "a/packs", file: "a/packs/one", want: fs.ErrExist},
		{about: "a file in place of a directory", dirs: "a", file: "a/packs", want: syscall.ENOTDIR},
	} {
		b := openTemp(t)
		if err := b.root.MkdirAll(cmp.Or(c.dirs, "."), dirMode); err != nil {
			t.Fatal(err)
		}
		if c.file != "" {
			if err := b.root.WriteFile(c.file, []byte("other"), fileMode); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.publishTree("temp", "a/packs/one"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.about, err, c.want)
		}
		if _, err := b.root.Stat("a/packs/one"); c.want == nil && err != nil {
			t.Errorf("%s: %v", c.about, err)
		}
		if c.file != "" {
			if got, err := b.root.ReadFile(c.file); err != nil || string(got) != "other" {
				t.Errorf("%s: %s holds %q, %v", c.about, c.file, got, err)
			}
		}
	}
	b := openTemp(t)
	if err := b.publish("none", "a/packs/one", b.root.Link); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file that is gone: %v", err)
	}
	if _, err := b.root.Stat("a"); err == nil {
		t.Error("directories were left for an object that could not be published")
	}
}

// openTemp opens a new directory with one file, "temp", to be published.
func openTemp(t *testing.T) *Backend {
	t.Helper()
	b, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.root.WriteFile("temp", nil, fileMode); err != nil {
		t.Fatal(err)
	}
	return b
}
