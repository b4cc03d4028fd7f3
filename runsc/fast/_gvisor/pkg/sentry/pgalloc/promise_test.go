package pgalloc

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
)

var (
	rootFS = checkpoint.ResourceID{ContainerName: "a", Path: "/"}
	other  = checkpoint.ResourceID{ContainerName: "b", Path: "/"}
)

func newFile(t *testing.T, id checkpoint.ResourceID) *MemoryFile {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewMemoryFile(file, MemoryFileOpts{ResourceID: id, DisableIMAWorkAround: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Destroy)
	return f
}

// withFiles is a context of a load that has memory files.
type withFiles struct {
	context.Context
	files map[checkpoint.ResourceID]*MemoryFile
}

func (c withFiles) Value(key any) any {
	if key == CtxMemoryFileMap {
		return c.files
	}
	return c.Context.Value(key)
}

func TestPromise(t *testing.T) {
	ctx := t.Context()
	BeginPromises()
	first, ok := MemoryFileFor(ctx, rootFS)
	if !ok {
		t.Fatal("no file is promised")
	}
	if again, _ := MemoryFileFor(ctx, rootFS); again != first {
		t.Error("one ID has two files")
	}
	if f := newFile(t, checkpoint.ResourceID{}); f == first {
		t.Error("a file without an ID is the promised one")
	}
	if f := newFile(t, rootFS); f != first || f.ResourceID() != rootFS {
		t.Errorf("the file that was made is another one, or has the ID %v", f.ResourceID())
	}
	made := newFile(t, other)
	if f, _ := MemoryFileFor(ctx, other); f != made {
		t.Error("a file that was made first is not found")
	}
	if err := EndPromises(); err != nil {
		t.Error(err)
	}
}

func TestPromiseNotKept(t *testing.T) {
	BeginPromises()
	MemoryFileFor(t.Context(), rootFS)
	newFile(t, other)
	if err := EndPromises(); err == nil || !strings.Contains(err.Error(), rootFS.String()) {
		t.Errorf("got %v, want an error with %v", err, rootFS)
	}
}

// TestHostilePromises: a state that names any number of files is promised some of them.
func TestHostilePromises(t *testing.T) {
	BeginPromises()
	for n := range maxPromised + 10 {
		id := checkpoint.ResourceID{ContainerName: fmt.Sprint(n), Path: "/"}
		if _, ok := MemoryFileFor(t.Context(), id); ok != (n < maxPromised) {
			t.Fatalf("file %d: promised: %v", n, ok)
		}
	}
	if err := EndPromises(); err == nil {
		t.Error("files were promised that nobody has made, and that is no error")
	}
}

// TestNothingPromised: files are found by the context, and made anew.
func TestNothingPromised(t *testing.T) {
	if err := EndPromises(); err != nil {
		t.Error(err)
	}
	f := newFile(t, rootFS)
	ctx := withFiles{t.Context(), map[checkpoint.ResourceID]*MemoryFile{rootFS: f}}
	if got, ok := MemoryFileFor(ctx, rootFS); !ok || got != f {
		t.Error("the context's file is not found")
	}
	if _, ok := MemoryFileFor(ctx, other); ok {
		t.Error("a file is found that the context does not have")
	}
	if newFile(t, rootFS) == f {
		t.Error("a file is made twice")
	}
}
