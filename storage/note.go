package storage

import (
	"context"
	"errors"
	"fmt"
)

// maxNote bounds a cluster's note, in bytes.
const maxNote = 64 << 10

// noteName returns the name of the object with a cluster's note. No namespace can have the name of its directory.
func noteName(cluster string) string { return "diapause_clusters/" + cluster + ".json" }

// notes are what clusters have noted in a store.
type notes struct{ objects *objects }

// Note returns what a cluster has noted in the store, or nil if it has noted nothing.
func (s notes) Note(ctx context.Context, cluster string) ([]byte, error) {
	data, err := s.objects.readAll(ctx, noteName(cluster), maxNote)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the note of cluster %s: %w", cluster, err)
	}
	return data, nil
}

// SetNote replaces what a cluster has noted in the store.
func (s notes) SetNote(ctx context.Context, cluster string, data []byte) error {
	if err := s.objects.backend.Replace(ctx, noteName(cluster), data); err != nil {
		return fmt.Errorf("write the note of cluster %s: %w", cluster, err)
	}
	return nil
}
