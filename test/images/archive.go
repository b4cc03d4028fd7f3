package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// nameAnnotation is how containerd names an image that it imports.
const nameAnnotation = "io.containerd.image.name"

// archive writes an OCI image layout as a tar stream. After an error it writes
// nothing more, and close returns that error.
type archive struct {
	w       *tar.Writer
	index   []ocispec.Descriptor
	written map[digest.Digest]bool
	gzip    bool // compress layers
	err     error
}

func newArchive(w io.Writer) *archive {
	return &archive{w: tar.NewWriter(w), written: map[digest.Digest]bool{}}
}

// add writes an image of the given layers and returns the digest of its manifest.
func (a *archive) add(name string, config ocispec.ImageConfig, layers ...tree) digest.Digest {
	var written []ocispec.Descriptor
	var contents []digest.Digest
	for _, t := range layers {
		data, err := t.layer()
		if err != nil {
			a.fail(err)
			return ""
		}
		written, contents = append(written, a.layer(data)), append(contents, digest.FromBytes(data))
	}
	return a.addLayers(name, config, written, contents)
}

// addLayers writes an image of layers that have been written, whose uncompressed contents have the given digests, and
// returns the digest of its manifest.
func (a *archive) addLayers(name string, config ocispec.ImageConfig, layers []ocispec.Descriptor,
	contents []digest.Digest,
) digest.Digest {
	image := ocispec.Image{
		Platform: platform(), Config: config, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: contents},
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Layers: layers,
	}
	manifest.Config = a.blobJSON(ocispec.MediaTypeImageConfig, image)
	d := a.blobJSON(ocispec.MediaTypeImageManifest, manifest)
	p := platform()
	d.Platform, d.Annotations = &p, map[string]string{nameAnnotation: name}
	a.index = append(a.index, d)
	return d.Digest
}

// layer writes a layer.
func (a *archive) layer(data []byte) ocispec.Descriptor {
	if !a.gzip {
		return a.blob(ocispec.MediaTypeImageLayer, data)
	}
	compressed, err := compress(data)
	a.fail(err)
	return a.blob(ocispec.MediaTypeImageLayerGzip, compressed)
}

// compress returns data as a gzip stream with no time in it. The bytes depend on the version of the module, which
// go.mod pins, and not on the version of Go.
func compress(data []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return buf.Bytes(), err
}

// close writes what makes the stream a whole layout.
func (a *archive) close() error {
	a.fileJSON(ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	a.fileJSON(ocispec.ImageIndexFile, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: a.index,
	})
	if a.err == nil {
		a.fail(a.w.Close())
	}
	return a.err
}

// blob writes data under its digest, once.
func (a *archive) blob(mediaType string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if !a.written[d.Digest] {
		a.written[d.Digest] = true
		a.file("blobs/sha256/"+d.Digest.Encoded(), data)
	}
	return d
}

func (a *archive) blobJSON(mediaType string, v any) ocispec.Descriptor {
	data, err := json.Marshal(v)
	a.fail(err)
	return a.blob(mediaType, data)
}

func (a *archive) fileJSON(name string, v any) {
	data, err := json.Marshal(v)
	a.fail(err)
	a.file(name, data)
}

func (a *archive) file(name string, data []byte) {
	a.header(name, int64(len(data)))
	if a.err == nil {
		_, err := a.w.Write(data)
		a.fail(err)
	}
}

// header begins a file of so many bytes.
func (a *archive) header(name string, size int64) {
	if a.err == nil {
		a.fail(a.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}))
	}
}

// fail keeps the first error.
func (a *archive) fail(err error) {
	if a.err == nil && err != nil {
		a.err = fmt.Errorf("images: %w", err)
	}
}
