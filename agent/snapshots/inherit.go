package snapshots

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// WorkingSet returns the working set of a snapshot in the store that has the snapshot, too. If nobody has restored the
// snapshot before, and it is on this node, its working set is what it shares with that of its parent, as far as there
// is one: a pod that is saved, restored and saved again waits for much of the same memory. Errors are those of
// storage.Store.WorkingSet.
func (rs *Readers) WorkingSet(ctx context.Context, s *Reader) ([]storage.ChunkRef, error) {
	chunks, err := s.WorkingSet(ctx)
	if !errors.Is(err, storage.ErrNotFound) || !s.OnNode {
		return chunks, err
	}
	return rs.inherited(ctx, s)
}

// inherited returns the chunks of a snapshot that are in the working set of its parent, in the order of that.
func (rs *Readers) inherited(ctx context.Context, s *Reader) ([]storage.ChunkRef, error) {
	key := s.Manifest.Meta.Parent
	if s.Far == nil || key == nil {
		return nil, fmt.Errorf("working set of %s: %w", s.ID.Key, storage.ErrNotFound)
	}
	parent, err := rs.stores.spool.TrustedManifest(ctx, *key)
	if err != nil {
		return nil, fmt.Errorf("working set of %s, by that of its parent: %w", s.ID.Key, err)
	}
	set, err := s.Far.WorkingSet(ctx, parent)
	if err != nil {
		return nil, fmt.Errorf("working set of %s, by that of its parent: %w", s.ID.Key, err)
	}
	return shared(s.Manifest, parent, set), nil
}

// shared returns the chunks of the memory in m with the content of those in a parent's working set, in the order of
// that. Of several chunks with one content it is the first.
func shared(m, parent *storage.Manifest, set []storage.ChunkRef) (chunks []storage.ChunkRef) {
	wanted := make(map[[32]byte]int, len(set)) // by digest: the place in set
	for i, c := range set {
		if c := parent.Files[c.File].Chunks[c.Index]; c.Codec != storage.CodecZero {
			wanted[c.Digest] = i
		}
	}
	found := make([]*storage.ChunkRef, len(set))
	for n := range m.Files {
		if m.Files[n].Name != runsc.PagesFile {
			continue
		}
		for i := range m.Files[n].Chunks {
			if at, ok := wanted[m.Files[n].Chunks[i].Digest]; ok && found[at] == nil {
				found[at] = &storage.ChunkRef{File: uint32(n), Index: uint32(i)}
			}
		}
	}
	for _, c := range found {
		if c != nil {
			chunks = append(chunks, *c)
		}
	}
	return chunks
}
