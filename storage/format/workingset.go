package format

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"
)

// ChunkRef names a chunk of a manifest.
type ChunkRef struct {
	File  uint32 // index in Manifest.Files
	Index uint32 // in File.Chunks
}

// The parts of an encoded working set. doc.go describes the whole format.
const (
	setMagic  = "DIAWSET"
	setPlain  = 0
	setSealed = 1
	setPrefix = len(setMagic) + 1 + DigestSize
	setRecord = 8
)

// Bounds of a working set.
const (
	MaxWorkingSet     = 1 << 20 // chunks
	MaxWorkingSetSize = setPrefix + MaxWorkingSet*setRecord + saltSize + DigestSize
)

// DecodeWorkingSet checks and decodes a working set. If it is that of another snapshot of this name, the error is
// ErrNotFound. If it is damaged, the error is a CorruptError.
func (m *Manifest) DecodeWorkingSet(data []byte) ([]ChunkRef, error) {
	chunks, err := decodeWorkingSet(m, data)
	if err != nil {
		if !errors.Is(err, ErrNotFound) {
			err = &CorruptError{Object: WorkingSetName(m.Meta.Key), Key: m.Meta.Key, Reason: "working set", Err: err}
		}
		return nil, err
	}
	return chunks, nil
}

// CheckRefs returns an error unless all chunks are those of the manifest.
func (m *Manifest) CheckRefs(chunks []ChunkRef) error {
	for _, c := range chunks {
		if uint64(c.File) >= uint64(len(m.Files)) || uint64(c.Index) >= uint64(len(m.Files[c.File].Chunks)) {
			return fmt.Errorf("no chunk %d in file %d", c.Index, c.File)
		}
	}
	return nil
}

// EncodeWorkingSet returns the bytes of a working set of m. It is encrypted if m is.
func EncodeWorkingSet(m *Manifest, chunks []ChunkRef) []byte {
	b := append([]byte(setMagic), setPlain)
	b = append(b, m.Digest[:]...)
	var list []byte
	for _, c := range chunks {
		list = binary.LittleEndian.AppendUint32(list, c.File)
		list = binary.LittleEndian.AppendUint32(list, c.Index)
	}
	if m.DataKey != nil {
		b[len(setMagic)] = setSealed
		salt := make([]byte, saltSize)
		_, _ = rand.Read(salt) // never fails
		b = append(b, salt...)
		return newAEAD(derive(useSet, m.DataKey.key, salt)).Seal(b, zeroNonce, list, b)
	}
	b = append(b, list...)
	digest := blake3.Sum256(b)
	return append(b, digest[:]...)
}

// decodeWorkingSet reads a working set of m. It never panics.
func decodeWorkingSet(m *Manifest, data []byte) ([]ChunkRef, error) {
	if len(data) < setPrefix || string(data[:len(setMagic)]) != setMagic {
		return nil, errors.New("wrong magic")
	}
	if [DigestSize]byte(data[len(setMagic)+1:]) != m.Digest {
		return nil, fmt.Errorf("working set of %s: of another snapshot of that name: %w", m.Meta.Key, ErrNotFound)
	}
	list, err := openWorkingSet(m, data)
	if err != nil {
		return nil, err
	}
	if len(list)%setRecord != 0 || len(list)/setRecord > MaxWorkingSet {
		return nil, fmt.Errorf("a list of %d bytes", len(list))
	}
	chunks := make([]ChunkRef, len(list)/setRecord)
	for i := range chunks {
		chunks[i] = ChunkRef{binary.LittleEndian.Uint32(list[i*setRecord:]), binary.LittleEndian.Uint32(list[i*setRecord+4:])}
	}
	return chunks, m.CheckRefs(chunks)
}

// openWorkingSet checks a working set and returns its list.
func openWorkingSet(m *Manifest, data []byte) ([]byte, error) {
	kind, rest := data[len(setMagic)], data[setPrefix:]
	switch {
	case kind == setPlain && m.DataKey == nil && len(rest) >= DigestSize:
		end := len(data) - DigestSize
		if blake3.Sum256(data[:end]) != [DigestSize]byte(data[end:]) {
			return nil, errors.New("digest mismatch")
		}
		return data[setPrefix:end], nil
	case kind == setSealed && m.DataKey != nil && len(rest) >= saltSize:
		salt, box := rest[:saltSize], rest[saltSize:]
		return newAEAD(derive(useSet, m.DataKey.key, salt)).Open(nil, zeroNonce, box, data[:setPrefix+saltSize])
	}
	return nil, fmt.Errorf("kind %d, %d bytes", kind, len(data))
}
