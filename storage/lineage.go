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
	lock      *lock                        // nil: chunks are not encrypted
	parent    *Manifest                    // nil: no chunk of it is used
	packs     []Pack                       // of the parent, those that may be named again
	prints    map[[printSize]byte][32]byte // digests of the parent's chunks, as far as it has fingerprints

	mu     sync.RWMutex
	chunks map[[32]byte]Chunk
}

// A long lineage must not fray into ever more packs of which ever less is used: reading it would
// take ever longer. So some of a parent's packs are not named again; the chunks in them that are
// still needed are written anew, side by side.
const (
	// maxInherited is how many packs of a parent may always be named again. One that names more is
	// held to twice the packs that its bytes would fill. When they are too many, a quarter of them
	// goes, so that the next few snapshots need not do it again.
	maxInherited = 32
	// minUsed is how much of the bytes of all packs must be used by the parent: read together with
	// what is used, the rest costs time.
	minUsed = 0.8
	// maxRewritten is how much of a parent's bytes is written anew at a time because of minUsed, a
	// single pack aside.
	maxRewritten = 1.0 / 8
)

// newLineage indexes the parent. One that is not in the store is used for its digest key alone.
func (s *Store) newLineage(ctx context.Context, key Key, parent *Manifest) (*lineage, error) {
	if parent != nil && parent.Meta.Namespace != key.Namespace {
		return nil, fmt.Errorf("%w: the parent %s is of another namespace", ErrInvalidName, parent.Meta.Key)
	}
	keys, err := s.keysOf(key.Namespace)
	if err != nil {
		return nil, err
	}
	l := &lineage{prints: map[[printSize]byte][32]byte{}, chunks: map[[32]byte]Chunk{}}
	encrypt := keys.Current != nil
	if parent == nil || parent.Encrypted() != encrypt {
		l.digestKey = newDigestKey()
		if encrypt {
			l.lock = newLock()
		}
		return l, nil
	}
	l.digestKey, l.lock = parent.DigestKey, parent.lock
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
		for i, c := range f.Chunks {
			if c.Codec == CodecZero || number[c.Pack] < 0 {
				continue
			}
			c.Pack = uint32(number[c.Pack])
			l.chunks[c.Digest] = c
			if len(f.prints) > 0 {
				l.prints[f.prints[i]] = c.Digest
			}
		}
	}
}

// keptPacks returns the packs that a child of m may name again, those of which m uses most first.
func keptPacks(m *Manifest) []int {
	used, total := usedBytes(m)
	kept := make([]int, len(m.Packs))
	for i := range kept {
		kept[i] = i
	}
	slices.SortStableFunc(kept, func(a, b int) int { return cmp.Compare(used[b], used[a]) })
	if limit := max(maxInherited, 2*(1+int(total/PackTarget))); len(kept) > limit {
		kept = kept[:limit*3/4]
	}
	return dropUnused(m, kept, used)
}

// usedBytes returns how many bytes of each pack a manifest names, each range once, and their sum.
func usedBytes(m *Manifest) (used []int64, total int64) {
	type place struct{ pack, offset uint32 }
	used = make([]int64, len(m.Packs))
	seen := map[place]bool{}
	for _, f := range m.Files {
		for i := range f.Chunks {
			c := &f.Chunks[i]
			if at := (place{c.Pack, c.Offset}); c.Codec != CodecZero && !seen[at] {
				seen[at] = true
				used[c.Pack] += int64(c.Stored)
				total += int64(c.Stored)
			}
		}
	}
	return used, total
}

// dropUnused leaves out the packs of which least is used, until enough of the rest is.
func dropUnused(m *Manifest, kept []int, used []int64) []int {
	var live, size int64
	for _, i := range kept {
		live += used[i]
		size += m.Packs[i].Size
	}
	worst := slices.Clone(kept)
	share := func(i int) float64 { return float64(used[i]) / float64(m.Packs[i].Size) }
	slices.SortStableFunc(worst, func(a, b int) int { return cmp.Compare(share(a), share(b)) })
	budget := int64(maxRewritten * float64(live))
	dropped := map[int]bool{}
	for _, i := range worst {
		if float64(live) >= minUsed*float64(size) || share(i) >= minUsed || len(dropped) > 0 && used[i] > budget {
			break
		}
		dropped[i] = true
		live -= used[i]
		size -= m.Packs[i].Size
		budget -= used[i]
	}
	return slices.DeleteFunc(kept, func(i int) bool { return dropped[i] })
}

// inherited is how many pack numbers belong to the parent.
func (l *lineage) inherited() uint32 { return uint32(len(l.packs)) }

// recognise returns the parent's chunk of that fingerprint and length.
func (l *lineage) recognise(print [printSize]byte, raw uint32) (Chunk, bool) {
	digest, ok := l.prints[print]
	if !ok {
		return Chunk{}, false
	}
	return l.find(digest, raw)
}

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
