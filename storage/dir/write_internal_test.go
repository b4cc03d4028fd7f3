package dir

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestWriteVector writes more pieces than the kernel takes at once, of all lengths.
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

// TestBehind cuts pieces anywhere.
func TestBehind(t *testing.T) {
	whole := []byte("abcdefg")
	for n := range len(whole) + 1 {
		pieces := [][]byte{{}, whole[:2:2], {}, whole[2:3:3], whole[3:7], {}}
		if got := bytes.Join(behind(pieces, n), nil); !bytes.Equal(got, whole[n:]) {
			t.Errorf("behind %d bytes: %q, want %q", n, got, whole[n:])
		}
	}
}

// TestPublishBeside publishes objects in a directory that others make and remove without a pause.
func TestPublishBeside(t *testing.T) {
	b, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.root.WriteFile("temp", nil, fileMode); err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	done := make(chan struct{})
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = b.root.Remove("packs")
				_ = b.root.Mkdir("packs", dirMode)
			}
		}
	})
	defer others.Wait()
	defer close(done)
	for range 100_000 {
		if err := b.publish("packs/one", func() error { return b.root.Link("temp", "packs/one") }); err != nil {
			t.Fatal(err)
		}
		if err := b.root.Remove("packs/one"); err != nil {
			t.Fatal(err)
		}
	}
}
