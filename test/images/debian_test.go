package images

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestAddFile: an image of a layer that is a file is the same as one of that layer in memory.
func TestAddFile(t *testing.T) {
	layer := tree{dir("etc", 0o755), text("etc/name", "value\n")}
	data, err := layer.layer()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var memory, file bytes.Buffer
	config := ocispec.ImageConfig{Cmd: []string{"/bin/true"}}
	a := newArchive(&memory)
	a.add("localhost/name:1", config, layer)
	b := newArchive(&file)
	b.addFile("localhost/name:1", config, path)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(memory.Bytes(), file.Bytes()) {
		t.Error("the archives differ")
	}
}

func TestAddFileThatIsNotThere(t *testing.T) {
	a := newArchive(&bytes.Buffer{})
	a.addFile("localhost/name:1", ocispec.ImageConfig{}, filepath.Join(t.TempDir(), "none"))
	if err := a.close(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want an error that says what does not exist", err)
	}
}

// TestDebianKey: an image is made anew when its packages, its files or its environment change.
func TestDebianKey(t *testing.T) {
	base := Debian{Name: "n", Files: map[string][]byte{"a": []byte("1")}}
	other := Debian{Name: "n", Files: map[string][]byte{"a": []byte("2")}}
	env := Debian{Name: "n", Files: base.Files, Env: []string{"A=1"}}
	seen := map[string]bool{}
	for _, key := range []string{base.key("x"), base.key("y"), other.key("x"), env.key("x")} {
		if seen[key] {
			t.Errorf("two images have the key %s", key)
		}
		seen[key] = true
	}
	same := Debian{Name: "n", Files: map[string][]byte{"a": []byte("1")}}
	if same.key("x") != base.key("x") {
		t.Error("the same image has two keys")
	}
}
