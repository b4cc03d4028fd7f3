// Package keyring reads the keys of namespaces from a directory, such as a mounted Kubernetes Secret.
//
// The file <directory>/<namespace> holds the keys of a namespace. <directory>/default holds those of all namespaces
// without a file. A file is either one key of 32 bytes, or lines. Each line is a key in 64 hex digits, or a word. Blank
// lines and lines that begin with # are ignored. The first line is for new snapshots. With the other lines, older
// snapshots can be read until they have been rewrapped.
//
// The word none stands for snapshots that are not encrypted: as the first line, new ones are not; as another line, all
// such snapshots may be read (storage.PlainAll). The word encrypted-only says that none of them may be read
// (storage.PlainNone). Without either word those may be read whose UID the reader knows (storage.PlainKnown).
//
// A namespace for which there is no file has no key: nothing of it is read or written.
package keyring

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Dir is a directory of keys. Each call of Keys reads it.
type Dir string

var _ storage.Keyring = Dir("")

// fallback is the file for namespaces that have no file.
const fallback = "default"

// Words that are no keys.
const (
	wordPlain = "none"
	wordOnly  = "encrypted-only"
)

// maxFile bounds a file of keys.
const maxFile = 64 << 10

// Keys implements storage.Keyring.
func (d Dir) Keys(namespace string) (storage.Keys, error) {
	if !snapshot.ValidName(namespace) {
		return storage.Keys{}, fmt.Errorf("%w: namespace %.80q", storage.ErrInvalidName, namespace)
	}
	for _, name := range []string{namespace, fallback} {
		data, err := d.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return storage.Keys{}, fmt.Errorf("%w: %w", storage.ErrKey, err)
		}
		keys, err := Parse(data)
		if err != nil {
			return storage.Keys{}, fmt.Errorf("key file %s: %w", name, err)
		}
		return keys, nil
	}
	return storage.Keys{}, fmt.Errorf("%w: neither %s nor %s in %s", storage.ErrKey, namespace, fallback, string(d))
}

func (d Dir) read(name string) ([]byte, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, err
	}
	defer root.Close() // nothing was written
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse reads a file of keys. If it does not understand the file, the error is ErrKey, and never contains a part of the
// file.
func Parse(data []byte) (keys storage.Keys, err error) {
	if len(data) == len(storage.Secret{}) {
		key := storage.Secret(data)
		return storage.Keys{Current: &key}, nil
	}
	if len(data) > maxFile {
		return keys, fmt.Errorf("%w: larger than %d bytes", storage.ErrKey, maxFile)
	}
	lines, only := 0, false
	for n, line := range bytes.Split(data, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if string(line) == wordOnly {
			only = true
			continue
		}
		lines++
		var key storage.Secret
		switch {
		case string(line) == wordPlain:
			keys.Plain = storage.PlainAll
			continue
		case len(line) != hex.EncodedLen(len(key)):
			return storage.Keys{}, fmt.Errorf("%w: line %d is not 64 hex digits", storage.ErrKey, n+1)
		}
		if _, err := hex.Decode(key[:], line); err != nil {
			return storage.Keys{}, fmt.Errorf("%w: line %d is not 64 hex digits", storage.ErrKey, n+1)
		}
		if lines == 1 {
			keys.Current = &key
		} else {
			keys.Former = append(keys.Former, key)
		}
	}
	switch {
	case lines == 0:
		return storage.Keys{}, fmt.Errorf("%w: no key", storage.ErrKey)
	case only && keys.Plain == storage.PlainAll:
		return storage.Keys{}, fmt.Errorf("%w: %s and %s contradict each other", storage.ErrKey, wordPlain, wordOnly)
	case only:
		keys.Plain = storage.PlainNone
	}
	return keys, nil
}
