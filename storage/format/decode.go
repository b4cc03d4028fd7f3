package format

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"

	"diapause.dev/api/snapshot"
)

// DecodeManifest reads the bytes of a manifest object and checks everything that can be checked
// without the packs. It never panics, and allocates no more than a fixed multiple of len(data).
//
// A damaged manifest is a CorruptError, and so is one that contradicts itself. A sound manifest is an ErrFormat if it
// has another format version, an unknown section that must be understood, or an unknown codec. An encrypted one is an
// ErrKey: DecodeWith reads it.
func DecodeManifest(data []byte) (*Manifest, error) {
	return DecodeWith(data, func(namespace string, id KeyID) (*DataKey, error) {
		return nil, fmt.Errorf("%w: the snapshot is encrypted with data key %s of namespace %s", ErrKey, id, namespace)
	})
}

// Unlocker finds a data key. Its errors are returned as they are.
type Unlocker func(namespace string, id KeyID) (*DataKey, error)

// DecodeWith is DecodeManifest for somebody who has data keys.
func DecodeWith(data []byte, unlock Unlocker) (*Manifest, error) {
	env, err := OpenEnvelope(data)
	if err == nil {
		var m *Manifest
		if m, err = env.manifest(unlock); err == nil {
			return m, nil
		}
	}
	var locked *lockedError
	switch {
	case errors.As(err, &locked):
		return nil, locked.err
	case errors.Is(err, ErrFormat):
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return nil, &CorruptError{Reason: "manifest", Err: err}
}

// lockedError is an error of an Unlocker. It says nothing about the manifest.
type lockedError struct{ err error }

func (e *lockedError) Error() string { return e.err.Error() }

// Envelope is what can be read of a manifest without a key.
type Envelope struct {
	Key   Key
	Packs []Pack
	Lock  *KeyID // of the data key; nil: not encrypted

	digest   [DigestSize]byte
	sections map[string][]byte
	signer   ed25519.PublicKey // nil: not signed
	salt     []byte
	before   []byte // what the sealed section authenticates
}

// OpenEnvelope reads the bytes of a manifest object as far as that needs no key. It checks the digest and the
// signature. If the manifest has another format version, or a section that must be understood, the error is an
// ErrFormat.
func OpenEnvelope(data []byte) (*Envelope, error) {
	if len(data) < manifestPrefix+DigestSize || len(data) > MaxManifest {
		return nil, fmt.Errorf("%d bytes", len(data))
	}
	if string(data[:len(manifestMagic)]) != manifestMagic {
		return nil, errors.New("wrong magic")
	}
	body, digest := data[:len(data)-DigestSize], [DigestSize]byte(data[len(data)-DigestSize:])
	if blake3.Sum256(body) != digest {
		return nil, errors.New("digest mismatch")
	}
	if v := binary.LittleEndian.Uint32(body[len(manifestMagic):]); v != Version {
		return nil, fmt.Errorf("%w: version %d, this is version %d", ErrFormat, v, Version)
	}
	sections, err := splitSections(body[manifestPrefix:])
	if err != nil {
		return nil, err
	}
	e := &Envelope{digest: digest, sections: sections}
	if body, e.signer, err = cutSignature(body, sections); err != nil {
		return nil, err
	}
	if e.Packs, err = decodePacks(sections[tagPacks]); err != nil {
		return nil, fmt.Errorf("section %q: %w", tagPacks, err)
	}
	if box, ok := sections[tagSeal]; ok {
		return e, e.openLock(body[:len(body)-sectionPrefix-len(box)], box, body)
	}
	var meta struct{ Key }
	if err := json.Unmarshal(sections[tagMeta], &meta); err != nil {
		return nil, fmt.Errorf("section %q: %w", tagMeta, err)
	}
	e.Key = meta.Key
	return e, CheckKey(e.Key)
}

// openLock reads the sections beside the sealed one. The sealed section must be the last of body.
func (e *Envelope) openLock(before, box, body []byte) error {
	if len(box) == 0 || &box[len(box)-1] != &body[len(body)-1] {
		return fmt.Errorf("section %q is not the last", tagSeal)
	}
	for _, tag := range []string{tagMeta, tagKey, tagFiles, tagChunks, tagPrints} {
		if _, ok := e.sections[tag]; ok {
			return fmt.Errorf("section %q beside %q", tag, tagSeal)
		}
	}
	l := e.sections[tagLock]
	if len(l) != len(KeyID{})+saltSize {
		return fmt.Errorf("section %q: %d bytes", tagLock, len(l))
	}
	id := KeyID(l)
	e.Lock, e.salt, e.before = &id, l[len(id):], before
	if err := json.Unmarshal(e.sections[tagName], &e.Key); err != nil {
		return fmt.Errorf("section %q: %w", tagName, err)
	}
	return CheckKey(e.Key)
}

func (e *Envelope) manifest(unlock Unlocker) (*Manifest, error) {
	m := &Manifest{Format: Version, Digest: e.digest, Packs: e.Packs, Signer: e.signer}
	if e.Lock == nil {
		if err := decodeContent(m, e.sections); err != nil {
			return nil, err
		}
		return m, validate(m)
	}
	var err error
	if m.DataKey, err = unlock(e.Key.Namespace, *e.Lock); err != nil {
		return nil, &lockedError{err}
	}
	content, err := m.DataKey.manifestAEAD(e.salt).Open(nil, zeroNonce, e.sections[tagSeal], e.before)
	if err != nil {
		return nil, fmt.Errorf("section %q: %w", tagSeal, err)
	}
	sections, err := splitSections(content)
	if err != nil {
		return nil, fmt.Errorf("section %q: %w", tagSeal, err)
	}
	if _, ok := sections[tagSign]; ok {
		return nil, fmt.Errorf("section %q inside %q", tagSign, tagSeal)
	}
	if err := decodeContent(m, sections); err != nil {
		return nil, err
	}
	if m.Meta.Key != e.Key {
		return nil, fmt.Errorf("of %s outside and of %s inside", e.Key, m.Meta.Key)
	}
	return m, validate(m)
}

// splitSections splits b into sections. It drops unknown sections that a reader may skip. Any other unknown section is
// an ErrFormat.
func splitSections(b []byte) (map[string][]byte, error) {
	sections := map[string][]byte{}
	for len(b) > 0 {
		if len(b) < sectionPrefix {
			return nil, errors.New("section cut short")
		}
		tag, size := string(b[:4]), binary.LittleEndian.Uint64(b[4:])
		b = b[sectionPrefix:]
		if size > uint64(len(b)) {
			return nil, fmt.Errorf("section %q: %d bytes of %d", tag, size, len(b))
		}
		data := b[:size]
		b = b[size:]
		switch {
		case known(tag):
			if _, twice := sections[tag]; twice {
				return nil, fmt.Errorf("section %q twice", tag)
			}
			sections[tag] = data
		case tag[0] < 'a' || tag[0] > 'z':
			return nil, fmt.Errorf("%w: section %q is required and not known", ErrFormat, tag)
		}
	}
	return sections, nil
}

func known(tag string) bool {
	switch tag {
	case tagMeta, tagKey, tagFiles, tagPacks, tagChunks, tagName, tagLock, tagSeal, tagPrints, tagSign:
		return true
	}
	return false
}

// decodeContent reads the sections that an encrypted manifest hides.
func decodeContent(m *Manifest, sections map[string][]byte) error {
	steps := []struct {
		tag    string
		decode func([]byte) error
	}{
		{tagMeta, func(b []byte) (err error) { m.Meta, err = decodeMeta(b); return err }},
		{tagKey, func(b []byte) (err error) { m.DigestKey, err = decodeKey(b); return err }},
		{tagFiles, func(b []byte) (err error) { m.Files, err = decodeFiles(b); return err }},
	}
	for _, s := range steps {
		data, ok := sections[s.tag]
		if !ok {
			return fmt.Errorf("section %q missing", s.tag)
		}
		if err := s.decode(data); err != nil {
			return fmt.Errorf("section %q: %w", s.tag, err)
		}
	}
	if err := decodeChunks(m.Files, sections[tagChunks], sections[tagFiles]); err != nil {
		return fmt.Errorf("section %q: %w", tagChunks, err)
	}
	if prints, ok := sections[tagPrints]; ok {
		if err := decodePrints(m.Files, prints); err != nil {
			return fmt.Errorf("section %q: %w", tagPrints, err)
		}
	}
	return nil
}

func decodeMeta(b []byte) (meta snapshot.Meta, err error) {
	if len(b) > maxMeta {
		return meta, fmt.Errorf("%d bytes", len(b))
	}
	err = json.Unmarshal(b, &meta)
	return meta, err
}

func decodeKey(b []byte) (key [32]byte, err error) {
	if len(b) != len(key) {
		return key, fmt.Errorf("%d bytes", len(b))
	}
	return [32]byte(b), nil
}

// fileRecord is the smallest length of a file's record: an empty name, size, number of chunks.
const fileRecord = 1 + 8 + 4

func decodeFiles(b []byte) ([]File, error) {
	if len(b) < 4 {
		return nil, errors.New("cut short")
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(n)*fileRecord > uint64(len(b)) || n > maxFiles {
		return nil, fmt.Errorf("%d files in %d bytes", n, len(b))
	}
	files := make([]File, n)
	for i := range files {
		if len(b) < 1 || len(b) < fileRecord+int(b[0]) {
			return nil, errors.New("cut short")
		}
		name := b[1 : 1+int(b[0])]
		b = b[1+len(name):]
		files[i] = File{Name: string(name), Size: int64(binary.LittleEndian.Uint64(b))}
		b = b[12:]
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%d bytes too many", len(b))
	}
	return files, nil
}

// chunkCounts reads the number of chunks of each file from a section that decodeFiles accepted.
func chunkCounts(b []byte, files []File) []uint32 {
	counts := make([]uint32, len(files))
	b = b[4:]
	for i := range files {
		b = b[1+len(files[i].Name)+8:]
		counts[i] = binary.LittleEndian.Uint32(b)
		b = b[4:]
	}
	return counts
}

func decodePacks(b []byte) ([]Pack, error) {
	if len(b) < 4 {
		return nil, errors.New("cut short")
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(n)*packRecord != uint64(len(b)) {
		return nil, fmt.Errorf("%d packs in %d bytes", n, len(b))
	}
	packs := make([]Pack, n)
	for i := range packs {
		p := &packs[i]
		copy(p.ID[:], b)
		p.Size = int64(binary.LittleEndian.Uint64(b[16:]))
		copy(p.Digest[:], b[24:])
		b = b[packRecord:]
	}
	return packs, nil
}

// decodeChunks reads the table and distributes its records to the files.
func decodeChunks(files []File, b, fileSection []byte) error {
	raw, n, err := unpackTable(b)
	if err != nil {
		return err
	}
	counts := chunkCounts(fileSection, files)
	left := uint64(n)
	for _, c := range counts {
		if uint64(c) > left {
			return errors.New("the files have more chunks than the table")
		}
		left -= uint64(c)
	}
	if left != 0 {
		return fmt.Errorf("%d chunks belong to no file", left)
	}
	all, cols := make([]Chunk, n), columns(raw, n)
	for i := range all {
		all[i] = cols.get(i)
	}
	for i, c := range counts {
		files[i].Chunks = all[:c:c]
		all = all[c:]
	}
	return nil
}

// decodePrints distributes the fingerprints to the files, whose chunks are already decoded.
func decodePrints(files []File, b []byte) error {
	n := countChunks(files)
	if n == 0 || len(b) != n*PrintSize {
		return fmt.Errorf("%d bytes for %d chunks", len(b), n)
	}
	all := make([][PrintSize]byte, n)
	for i := range all {
		all[i] = [PrintSize]byte(b[i*PrintSize:])
	}
	for i := range files {
		f := &files[i]
		c := len(f.Chunks)
		f.Prints, all = all[:c:c], all[c:]
	}
	return nil
}

// unpackTable returns the raw table and its number of records. It allocates at most maxExpansion times len(b).
func unpackTable(b []byte) ([]byte, int, error) {
	if len(b) < tableHeader {
		return nil, 0, errors.New("cut short")
	}
	codec, n, data := Codec(b[0]), binary.LittleEndian.Uint64(b[1:]), b[tableHeader:]
	if n > maxTable/chunkRecord {
		return nil, 0, fmt.Errorf("%d chunks", n)
	}
	size := n * chunkRecord
	switch codec {
	case CodecNone:
		if uint64(len(data)) != size {
			return nil, 0, fmt.Errorf("%d bytes for %d chunks", len(data), n)
		}
		return data, int(n), nil
	case CodecZstd:
		if size > maxExpansion*uint64(len(data)) {
			return nil, 0, fmt.Errorf("%d chunks in %d bytes", n, len(data))
		}
		raw := make([]byte, size)
		return raw, int(n), decodeFrame(&tableDecoders, raw, data)
	}
	return nil, 0, fmt.Errorf("%w: table in codec %s", ErrFormat, codec)
}
