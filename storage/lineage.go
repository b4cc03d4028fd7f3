package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// lineage is what a writer knows to be stored already: the chunks of the parent that lie in packs
// worth keeping, and those that the writer itself has placed. Pack numbers below inherited() are
// the parent's packs, those from there on the writer's own. Safe for concurrent use.
type lineage struct {
	digestKey [32]byte
	parent    *Manifest // nil: no chunk of it is used
	packs     []Pack    // of the parent, those that may be named again

	mu     sync.RWMutex
	chunks map[[32]byte]Chunk
}

// minInherited is how many packs of a parent may always be named again. A parent that names more is
// held to twice the packs that its bytes would fill: what lies in the emptiest of them is written
// anew, so that a long lineage does not fray into ever more packs.
const minInherited = 64

// newLineage indexes the parent. One that is not in the store is used for its digest key alone.
func (s *Store) newLineage(ctx context.Context, key Key, parent *Manifest) (*lineage, error) {
	l := &lineage{chunks: map[[32]byte]Chunk{}}
	if parent == nil {
		l.digestKey = newDigestKey()
		return l, nil
	}
	if parent.Meta.Namespace != key.Namespace {
		return nil, fmt.Errorf("%w: the parent %s is of another namespace", ErrInvalidName, parent.Meta.Key)
	}
	l.digestKey = parent.DigestKey
	switch same, err := s.holds(ctx, parent); {
	case err != nil:
		return nil, fmt.Errorf("look for the parent %s: %w", parent.Meta.Key, err)
	case !same:
		s.log.Info("parent is not in this store, its chunks are stored anew", "snapshot", key.String(), "parent", parent.Meta.Key.String())
		return l, nil
	}
	l.parent = parent
	l.inherit()
	return l, nil
}

// holds reports whether the store has this very manifest.
func (s *Store) holds(ctx context.Context, m *Manifest) (bool, error) {
	digest, err := s.manifestDigest(ctx, m.Meta.Key)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrTruncated) {
		return false, nil
	}
	return digest == m.Digest, err
}

// inherit chooses the parent's packs to keep, and indexes the chunks in them.
func (l *lineage) inherit() {
	number := make([]int, len(l.parent.Packs)) // in l.packs, or -1
	for i := range number {
		number[i] = -1
	}
	for _, i := range keptPacks(l.parent) {
		number[i] = len(l.packs)
		l.packs = append(l.packs, l.parent.Packs[i])
	}
	for _, f := range l.parent.Files {
		for _, c := range f.Chunks {
			if c.Codec != CodecZero && number[c.Pack] >= 0 {
				c.Pack = uint32(number[c.Pack])
				l.chunks[c.Digest] = c
			}
		}
	}
}

// keptPacks returns the packs that a child of m may name again, those of which m uses most first.
func keptPacks(m *Manifest) []int {
	used := make([]int64, len(m.Packs))
	var total int64
	for _, f := range m.Files {
		for i := range f.Chunks {
			c := &f.Chunks[i]
			if c.Codec != CodecZero {
				used[c.Pack] += int64(c.Stored)
				total += int64(c.Stored)
			}
		}
	}
	order := make([]int, len(m.Packs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(used[b], used[a]) })
	limit := max(minInherited, 2*(1+int(total/PackTarget)))
	return order[:min(limit, len(order))]
}

// inherited is how many pack numbers belong to the parent.
func (l *lineage) inherited() uint32 { return uint32(len(l.packs)) }

// find returns the stored chunk of that digest and length.
func (l *lineage) find(digest [32]byte, raw uint32) (Chunk, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c, ok := l.chunks[digest]
	return c, ok && c.Raw == raw
}

// add makes a chunk that the writer has placed known.
func (l *lineage) add(c Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chunks[c.Digest] = c
}
