package storage

import (
	"context"
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
	setMagic      = "DIAWSET"
	setPlain      = 0
	setSealed     = 1
	setPrefix     = len(setMagic) + 1 + digestSize
	setRecord     = 8
	maxWorkingSet = 1 << 20 // chunks
	maxSetSize    = setPrefix + maxWorkingSet*setRecord + saltSize + digestSize
)

func workingSetName(key Key) string { return snapshotDir(key) + "workingset" }

// PutWorkingSet records which chunks of a snapshot a restored sandbox asks for first, in that order. It replaces an
// earlier record. It keeps at most the first 1 Mi chunks.
func (s *Store) PutWorkingSet(ctx context.Context, m *Manifest, chunks []ChunkRef) error {
	chunks = chunks[:min(len(chunks), maxWorkingSet)]
	if err := m.checkRefs(chunks); err != nil {
		return fmt.Errorf("write working set of %s: %w", m.Meta.Key, err)
	}
	if err := s.backend.Replace(ctx, workingSetName(m.Meta.Key), encodeWorkingSet(m, chunks)); err != nil {
		return fmt.Errorf("write working set of %s: %w", m.Meta.Key, err)
	}
	return nil
}

// WorkingSet returns what PutWorkingSet has recorded for a snapshot. If there is no record, or only that of another
// snapshot of this name, the error is ErrNotFound.
func (s *Store) WorkingSet(ctx context.Context, m *Manifest) ([]ChunkRef, error) {
	data, err := s.EncodedWorkingSet(ctx, m.Meta.Key)
	if err != nil {
		return nil, err
	}
	return m.DecodeWorkingSet(data)
}

// EncodedWorkingSet is WorkingSet for somebody who does not have the manifest yet. It returns what DecodeWorkingSet
// takes.
func (s *Store) EncodedWorkingSet(ctx context.Context, key Key) ([]byte, error) {
	data, err := s.readAll(ctx, workingSetName(key), int64(maxSetSize))
	if err != nil {
		return nil, fmt.Errorf("read working set of %s: %w", key, err)
	}
	return data, nil
}

// DecodeWorkingSet checks and decodes a working set. If it is that of another snapshot of this name, the error is
// ErrNotFound. If it is damaged, the error is a CorruptError.
func (m *Manifest) DecodeWorkingSet(data []byte) ([]ChunkRef, error) {
	chunks, err := decodeWorkingSet(m, data)
	if err != nil {
		if !errors.Is(err, ErrNotFound) {
			err = &CorruptError{Object: workingSetName(m.Meta.Key), Key: m.Meta.Key, Reason: "working set", Err: err}
		}
		return nil, err
	}
	return chunks, nil
}

func (m *Manifest) checkRefs(chunks []ChunkRef) error {
	for _, c := range chunks {
		if uint64(c.File) >= uint64(len(m.Files)) || uint64(c.Index) >= uint64(len(m.Files[c.File].Chunks)) {
			return fmt.Errorf("no chunk %d in file %d", c.Index, c.File)
		}
	}
	return nil
}

func encodeWorkingSet(m *Manifest, chunks []ChunkRef) []byte {
	b := append([]byte(setMagic), setPlain)
	b = append(b, m.Digest[:]...)
	var list []byte
	for _, c := range chunks {
		list = binary.LittleEndian.AppendUint32(list, c.File)
		list = binary.LittleEndian.AppendUint32(list, c.Index)
	}
	if m.lock != nil {
		b[len(setMagic)] = setSealed
		salt := make([]byte, saltSize)
		_, _ = rand.Read(salt) // never fails
		b = append(b, salt...)
		return newAEAD(derive(useSet, m.lock.key, salt)).Seal(b, zeroNonce, list, b)
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
	if [digestSize]byte(data[len(setMagic)+1:]) != m.Digest {
		return nil, fmt.Errorf("working set of %s: of another snapshot of that name: %w", m.Meta.Key, ErrNotFound)
	}
	list, err := openWorkingSet(m, data)
	if err != nil {
		return nil, err
	}
	if len(list)%setRecord != 0 || len(list)/setRecord > maxWorkingSet {
		return nil, fmt.Errorf("a list of %d bytes", len(list))
	}
	chunks := make([]ChunkRef, len(list)/setRecord)
	for i := range chunks {
		chunks[i] = ChunkRef{binary.LittleEndian.Uint32(list[i*setRecord:]), binary.LittleEndian.Uint32(list[i*setRecord+4:])}
	}
	return chunks, m.checkRefs(chunks)
}

// openWorkingSet checks a working set and returns its list.
func openWorkingSet(m *Manifest, data []byte) ([]byte, error) {
	kind, rest := data[len(setMagic)], data[setPrefix:]
	switch {
	case kind == setPlain && m.lock == nil && len(rest) >= digestSize:
		end := len(data) - digestSize
		if blake3.Sum256(data[:end]) != [digestSize]byte(data[end:]) {
			return nil, errors.New("digest mismatch")
		}
		return data[setPrefix:end], nil
	case kind == setSealed && m.lock != nil && len(rest) >= saltSize:
		salt, box := rest[:saltSize], rest[saltSize:]
		return newAEAD(derive(useSet, m.lock.key, salt)).Open(nil, zeroNonce, box, data[:setPrefix+saltSize])
	}
	return nil, fmt.Errorf("kind %d, %d bytes", kind, len(data))
}
