package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"diapause.dev/test/privileged"
	"diapause.dev/test/tools"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// programs returns a Bin whose image programs are a few bytes each.
func programs(t *testing.T) tools.Bin {
	t.Helper()
	if err := tools.Packages(t.Context()); err != nil {
		privileged.Need(t, "Debian packages that are not installed")
		t.Fatal(err)
	}
	bin := tools.Bin{Root: "../..", Dir: t.TempDir()}
	if err := os.Mkdir(bin.Path("image"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(bin.Path("gvisor-bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(tools.ReleasePrograms(), "image/pause", "image/workload", "image/probed") {
		if err := os.WriteFile(bin.Path(name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func write(t *testing.T, bin tools.Bin) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, bin); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestWriteIsReproducible(t *testing.T) {
	bin := programs(t)
	if !bytes.Equal(write(t, bin), write(t, bin)) {
		t.Error("the same programs gave two archives")
	}
}

// TestWriteRelease: the release's image, whose programs are built anew for each, has the same bytes twice, and holds
// what the manifests and the installer expect where they expect it. The image of tests holds the same, not compressed.
func TestWriteRelease(t *testing.T) {
	var first, second, plain bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if _, err := WriteRelease(w, programs(t)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same programs gave two archives")
	}
	compressed, err := gzip.NewReader(bytes.NewReader(firstLayer(t, first.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(compressed)
	if err != nil {
		t.Fatal(err)
	}
	inside := unpack(t, layer)
	for _, name := range tools.ReleasePrograms() {
		if string(inside[AgentDir+"/"+name]) != name {
			t.Errorf("the image does not hold %s", name)
		}
	}
	for _, name := range Papers() {
		if len(inside[name]) == 0 {
			t.Errorf("the image does not hold %s", name)
		}
	}
	if err := WriteAgent(&plain, programs(t)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(firstLayer(t, plain.Bytes()), layer) {
		t.Error("the image of tests holds something else than the release's")
	}
}

// firstLayer returns the first layer of the first image of an archive, as it is stored.
func firstLayer(t *testing.T, archive []byte) []byte {
	t.Helper()
	files := unpack(t, archive)
	var index ocispec.Index
	parse(t, files[ocispec.ImageIndexFile], &index)
	var manifest ocispec.Manifest
	parse(t, blob(t, files, index.Manifests[0]), &manifest)
	return blob(t, files, manifest.Layers[0])
}

// TestWrite reads the archive back: every blob has the digest that it is named
// by, and every image all of its blobs.
func TestWrite(t *testing.T) {
	files := unpack(t, write(t, programs(t)))
	var index ocispec.Index
	parse(t, files[ocispec.ImageIndexFile], &index)
	var names []string
	for _, d := range index.Manifests {
		names = append(names, d.Annotations[nameAnnotation])
		var manifest ocispec.Manifest
		parse(t, blob(t, files, d), &manifest)
		var image ocispec.Image
		parse(t, blob(t, files, manifest.Config), &image)
		for i, layer := range manifest.Layers {
			blob(t, files, layer)
			if image.RootFS.DiffIDs[i] != layer.Digest {
				t.Errorf("%s: layer %d is %s in the manifest and %s in the config", names, i, layer.Digest, image.RootFS.DiffIDs[i])
			}
		}
	}
	if want := []string{Pause, Busybox, Workload}; !slices.Equal(names, want) {
		t.Errorf("the images are %q, want %q", names, want)
	}
}

func TestWriteWithoutPrograms(t *testing.T) {
	if err := Write(io.Discard, tools.Bin{Dir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want an error that says what does not exist", err)
	}
}

func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func blob(t *testing.T, files map[string][]byte, d ocispec.Descriptor) []byte {
	t.Helper()
	data := files["blobs/sha256/"+d.Digest.Encoded()]
	if digest.FromBytes(data) != d.Digest || int64(len(data)) != d.Size {
		t.Fatalf("the blob %s has the digest %s and %d bytes, want %d", d.Digest, digest.FromBytes(data), len(data), d.Size)
	}
	return data
}

func parse(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}
