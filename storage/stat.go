package storage

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/storage/format"
)

// StatOptions of Store.Stat.
type StatOptions struct {
	Namespace string // "": all

	// Progress, if set, is called with the manifests read and their total.
	Progress func(done, total int64)
}

// StoreStats sums up what a store holds. Sizes are bytes.
type StoreStats struct {
	Snapshots     int
	Damaged       int   // snapshots whose manifest cannot be read; RawBytes and NamedBytes lack them
	RawBytes      int64 // of all snapshots
	NamedBytes    int64 // stored bytes that the snapshots name; shared ones count once for each snapshot
	ManifestBytes int64
	Packs         int
	PackBytes     int64
	Unreferenced  int   // packs that no manifest names
	UnrefBytes    int64 // of those
	Missing       int   // packs that a manifest names and that do not exist
}

// DedupRatio is how many times larger the packs would be if each snapshot had its own. It is 0 if no pack is
// referenced.
func (s StoreStats) DedupRatio() float64 {
	if s.PackBytes == s.UnrefBytes {
		return 0
	}
	return float64(s.NamedBytes) / float64(s.PackBytes-s.UnrefBytes)
}

// Stat sums up a store. It reads every manifest, and no pack. Objects that are written or removed meanwhile may be
// counted or not. So packs of a writer under way count as unreferenced, and packs of a snapshot that was just removed
// may count as missing. If a namespace has damaged manifests, packs that only these name count as unreferenced.
func (s *Store) Stat(ctx context.Context, o StatOptions) (StoreStats, error) {
	c := census{objects: s.objects, manifests: s.manifests, have: map[string]int64{}, named: map[string]bool{}}
	if err := c.list(ctx, o.Namespace); err != nil {
		return StoreStats{}, fmt.Errorf("sum up %s: %w", s.objects.location(), err)
	}
	for i, key := range c.keys {
		if err := c.read(ctx, key); err != nil {
			return StoreStats{}, fmt.Errorf("sum up %s: %w", s.objects.location(), err)
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(len(c.keys)))
		}
	}
	c.sum()
	return c.stats, nil
}

// census is one run of Stat.
type census struct {
	objects   *objects
	manifests *manifests
	keys      []Key
	have      map[string]int64 // sizes of packs by the objects' names
	named     map[string]bool
	stats     StoreStats
}

// list records the names and sizes of manifests and packs.
func (c *census) list(ctx context.Context, namespace string) error {
	prefix := ""
	if namespace != "" {
		if err := format.CheckNamespace(namespace); err != nil {
			return err
		}
		prefix = namespace + "/"
	}
	return c.objects.backend.List(ctx, prefix, func(o ObjectInfo) error {
		if key, ok := format.ParseManifestName(o.Name); ok {
			c.keys = append(c.keys, key)
			c.stats.ManifestBytes += o.Size
		} else if ns, ok := format.NamespaceOf(o.Name); ok {
			if _, ok := format.ParsePackName(ns, o.Name); ok {
				c.have[o.Name] = o.Size
			}
		}
		return nil
	})
}

// read adds a manifest to the sums, unless the manifest has been removed meanwhile.
func (c *census) read(ctx context.Context, key Key) error {
	m, err := c.manifests.Manifest(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrFormat):
		c.stats.Snapshots++
		c.stats.Damaged++
		return nil
	case err != nil:
		return err
	}
	sum := m.Stats()
	c.stats.Snapshots++
	c.stats.RawBytes += sum.RawBytes
	c.stats.NamedBytes += sum.StoredBytes
	for i := range m.Packs {
		c.named[m.PackObject(uint32(i))] = true
	}
	return nil
}

// sum compares the packs that exist with those that are named.
func (c *census) sum() {
	for name, size := range c.have {
		c.stats.Packs++
		c.stats.PackBytes += size
		if !c.named[name] {
			c.stats.Unreferenced++
			c.stats.UnrefBytes += size
		}
	}
	for name := range c.named {
		if _, ok := c.have[name]; !ok {
			c.stats.Missing++
		}
	}
}
