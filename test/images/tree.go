package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
)

// sticky is the mode bit of a directory such as /tmp, as tar writes it.
const sticky = 0o1000

// entry is one file of a layer.
type entry struct {
	header tar.Header
	data   []byte
}

// tree is the content of a layer; a directory comes before what is in it.
type tree []entry

func dir(name string, mode int64) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}}
}

func symlink(name, target string) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

func text(name, content string) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, data: []byte(content)}
}

// file is a program read from path.
func file(name, path string) (entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return entry{}, fmt.Errorf("images: %w", err)
	}
	return entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, data: data}, nil
}

// layer returns the tree as an uncompressed tar, with no times in it.
func (t tree) layer() ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range t {
		e.header.Size = int64(len(e.data))
		if err := w.WriteHeader(&e.header); err != nil {
			return nil, fmt.Errorf("images: %s: %w", e.header.Name, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, fmt.Errorf("images: %s: %w", e.header.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	return buf.Bytes(), nil
}
