package storage

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage/format"
)

// lineage is what a writer knows to be stored already: the parent's chunks in packs that are worth keeping, and the
// chunks that the writer has placed itself. Pack numbers below inherited() are the parent's packs; the others are the
// writer's own. Safe for concurrent use.
type lineage struct {
	digestKey [32]byte
	lock      *format.DataKey // nil: chunks are not encrypted
	wrapping  string          // id of the namespace key under which lock was made; empty: not known
	parent    *Manifest       // nil: no chunk of it is used
	packs     []Pack          // the parent's packs that may be named again
	known     *inherited      // the chunks in these packs; nil: there are none

	mu    sync.RWMutex
	seed  maphash.Seed
	own   []Chunk // chunks that the writer has placed
	byOwn index   // finds chunks of own by digest
}

// A long lineage must not spread over ever more packs of which ever less is used: reading it would take ever longer. So
// a child does not name all of its parent's packs again. It writes the chunks anew that it still needs from the others,
// side by side.
const (
	// maxInherited is how many packs of a parent may always be named again. For a large parent the limit is twice the
	// number of packs that its bytes would fill. If the parent has more packs, only three quarters of the limit are kept,
	// so that the next few snapshots need not cut again.
	maxInherited = 32
	// minUsed is the share of the bytes of all packs that the parent must use. The rest costs time, because it is read
	// together with what is used.
	minUsed = 0.8
	// maxRewritten is the largest share of a parent's bytes that is written anew at a time because of minUsed. One pack is
	// allowed even if it exceeds this.
	maxRewritten = 1.0 / 8
)

// newLineage indexes the parent. If the store does not have the parent undamaged, only its digest key and its data key
// are used. Nothing is used of a parent that the store does not trust.
func (s *Store) newLineage(ctx context.Context, key Key, parent *Manifest) (*lineage, error) {
	if parent != nil && parent.Meta.Namespace != key.Namespace {
		return nil, fmt.Errorf("%w: the parent %s is of another namespace", ErrInvalidName, parent.Meta.Key)
	}
	keys, err := s.dataKeys.of(key.Namespace)
	if err != nil {
		return nil, err
	}
	if parent != nil {
		if err := s.Trusts(parent); err != nil {
			s.objects.log.Info("nothing is reused from the parent", "snapshot", key.String(), "reason", err)
			parent = nil
		}
	}
	l := &lineage{seed: maphash.MakeSeed()}
	encrypt := keys.Current != nil
	if parent == nil || parent.Encrypted() != encrypt || encrypt && s.formerly(parent, *keys.Current) {
		l.digestKey = newDigestKey()
		if encrypt {
			l.lock, l.wrapping = format.NewDataKey(), format.KeyIDOf(*keys.Current).String()
		}
		return l, nil
	}
	l.digestKey, l.lock, l.wrapping = parent.DigestKey, parent.DataKey, parent.Meta.NamespaceKey
	same, err := s.holds(ctx, parent)
	if err != nil {
		return nil, fmt.Errorf("look for the parent %s: %w", parent.Meta.Key, err)
	}
	if why := s.unusable(ctx, parent); !same || why != "" {
		s.objects.log.Info("the parent's chunks are stored again", "snapshot", key.String(),
			"parent", parent.Meta.Key.String(), "in this store", same, "damage", why)
		return l, nil
	}
	l.parent = parent
	l.inherit()
	return l, nil
}

// unusable returns why no chunk of a parent can be relied on, or "" if no reason is known. It reads no data.
func (s *Store) unusable(ctx context.Context, parent *Manifest) (why string) {
	why, err := s.Damaged(ctx, parent.Meta.Key)
	if err == nil && why == "" {
		err = s.objects.statPacks(ctx, parent)
	}
	if err != nil {
		return err.Error()
	}
	return why
}

// inherit chooses the parent's packs to keep, and indexes the chunks in them.
func (l *lineage) inherit() {
	numbers := make([]int64, len(l.parent.Packs)) // in l.packs, or -1
	for i := range numbers {
		numbers[i] = -1
	}
	for _, i := range keptPacks(l.parent) {
		numbers[i] = int64(len(l.packs))
		l.packs = append(l.packs, l.parent.Packs[i])
	}
	l.known = newInherited(l.parent, numbers)
}

// forget frees the memory of the known chunks, once all chunks are placed. Of the parent it keeps the identity.
func (l *lineage) forget() {
	l.known, l.own, l.byOwn = nil, nil, index{}
	l.parent = identityOf(l.parent)
}

// identityOf returns what distinguishes a manifest from all others, or nil for nil.
func identityOf(m *Manifest) *Manifest {
	if m == nil {
		return nil
	}
	return &Manifest{Meta: snapshot.Meta{Key: m.Meta.Key}, Digest: m.Digest}
}

// keptPacks returns the packs that a child of m may name again, the most used first.
func keptPacks(m *Manifest) []int {
	used, total := m.UsedBytes()
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

// dropUnused leaves out the least used packs, until enough of the rest is used.
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

// inherited returns how many pack numbers belong to the parent.
func (l *lineage) inherited() uint32 { return uint32(len(l.packs)) }

// recognise returns the place of the parent's chunk with this fingerprint and length.
func (l *lineage) recognise(print *[format.PrintSize]byte, raw uint32) (place uint32, ok bool) {
	if l.known == nil {
		return 0, false
	}
	place, ok = l.known.byPrint(print)
	return place, ok && l.known.chunk(place).Raw == raw
}

// find returns the stored chunk with this digest and length.
func (l *lineage) find(digest [32]byte, raw uint32) (c Chunk, ok bool) {
	if l.known != nil {
		if place, ok := l.known.byDigest(&digest); ok {
			c = l.known.chunk(place)
			return c, c.Raw == raw
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	place, ok := l.byOwn.find(maphash.Bytes(l.seed, digest[:]),
		func(place uint32) bool { return l.own[place].Digest == digest })
	if ok {
		c = l.own[place]
	}
	return c, ok && c.Raw == raw
}

// add records a chunk that the writer has placed.
func (l *lineage) add(c Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = append(l.own, c)
	l.byOwn.add(maphash.Bytes(l.seed, c.Digest[:]), uint32(len(l.own)-1), func(place uint32) uint64 {
		return maphash.Bytes(l.seed, l.own[place].Digest[:])
	})
}

func newDigestKey() (key [32]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}
