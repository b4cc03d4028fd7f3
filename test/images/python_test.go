package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"diapause.dev/test/privileged"
	"diapause.dev/test/tools"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestWritePython: the image has the program, what its dynamic linker needs, and the library.
func TestWritePython(t *testing.T) {
	if err := tools.Python(t.Context()); err != nil {
		privileged.Need(t, "Debian packages that are not installed")
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := WritePython(t.Context(), &buf); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, buf.Bytes())
	var index ocispec.Index
	parse(t, files[ocispec.ImageIndexFile], &index)
	var manifest ocispec.Manifest
	parse(t, files["blobs/sha256/"+index.Manifests[0].Digest.Encoded()], &manifest)
	layer := tar.NewReader(bytes.NewReader(files["blobs/sha256/"+manifest.Layers[0].Digest.Encoded()]))
	kinds := map[string]int{"program": 0, "linker": 0, "library": 0}
	for {
		h, err := layer.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case h.Name == "usr/bin/python3" && h.Mode == 0o755:
			kinds["program"]++
		case bytes.Contains([]byte(h.Name), []byte("/ld-linux")):
			kinds["linker"]++
		case bytes.HasSuffix([]byte(h.Name), []byte("/json/__init__.py")):
			kinds["library"]++
		}
	}
	for kind, n := range kinds {
		if n != 1 {
			t.Errorf("%s: %d times", kind, n)
		}
	}
}
