package storage

import (
	"context"
	"fmt"

	"diapause.dev/storage/format"
)

// workingSets are those of the snapshots of a store.
type workingSets struct{ objects *objects }

// PutWorkingSet records which chunks of a snapshot a restored sandbox asks for first, in that order. It replaces an
// earlier record. It keeps at most the first 1 Mi chunks.
func (s workingSets) PutWorkingSet(ctx context.Context, m *Manifest, chunks []ChunkRef) error {
	chunks = chunks[:min(len(chunks), format.MaxWorkingSet)]
	if err := m.CheckRefs(chunks); err != nil {
		return fmt.Errorf("write working set of %s: %w", m.Meta.Key, err)
	}
	set := format.EncodeWorkingSet(m, chunks)
	if err := s.objects.backend.Replace(ctx, format.WorkingSetName(m.Meta.Key), set); err != nil {
		return fmt.Errorf("write working set of %s: %w", m.Meta.Key, err)
	}
	return nil
}

// WorkingSet returns what PutWorkingSet has recorded for a snapshot. If there is no record, or only that of another
// snapshot of this name, the error is ErrNotFound.
func (s workingSets) WorkingSet(ctx context.Context, m *Manifest) ([]ChunkRef, error) {
	data, err := s.EncodedWorkingSet(ctx, m.Meta.Key)
	if err != nil {
		return nil, err
	}
	return m.DecodeWorkingSet(data)
}

// EncodedWorkingSet is WorkingSet for somebody who does not have the manifest yet. It returns what DecodeWorkingSet
// takes.
func (s workingSets) EncodedWorkingSet(ctx context.Context, key Key) ([]byte, error) {
	data, err := s.objects.readAll(ctx, format.WorkingSetName(key), int64(format.MaxWorkingSetSize))
	if err != nil {
		return nil, fmt.Errorf("read working set of %s: %w", key, err)
	}
	return data, nil
}
