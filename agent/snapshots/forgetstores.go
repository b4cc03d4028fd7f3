package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"diapause.dev/agent/journal"
)

// keptStores is how many stores the node remembers. Beyond it, a store is forgotten if nothing refers to it. Only their
// number is limited, not their age: the node's clock may be wrong.
const keptStores = 256

// forgetStores forgets the stores that were opened least recently, beyond keptStores, and to which nothing refers. It
// never forgets
//
//   - the agent's own store, and those that this agent has looked for since its start;
//   - those of requests that have not ended;
//   - those to which the cluster refers: storage configs and PodSnapshots.
//
// If it cannot be known what the cluster refers to, nothing is forgotten.
func (s *Stores) forgetStores(ctx context.Context, j *journal.Journal) error {
	files, err := s.own.ids.files()
	surplus := len(files) - keptStores
	if err != nil || surplus <= 0 {
		return err
	}
	referred, err := s.referred(ctx, j)
	if err != nil {
		return fmt.Errorf("%d stores are remembered, and none is forgotten: %w", len(files), err)
	}
	for _, f := range files {
		if surplus <= 0 {
			break
		}
		if referred[f.Name()] {
			continue
		}
		gone, err := s.forgetStore(f.Name())
		if err != nil {
			return err
		}
		if gone {
			surplus--
			s.log.Warn("a store is forgotten that nothing refers to", "file", f.Name(), "last_opened", f.ModTime())
		}
	}
	return nil
}

// referred returns the names of the files of stores to which the journal or the cluster refers.
func (s *Stores) referred(ctx context.Context, j *journal.Journal) (map[string]bool, error) {
	var locations []string
	if s.o.Cluster != nil {
		var err error
		if locations, err = s.o.Cluster.Referred(ctx); err != nil {
			return nil, err
		}
	}
	for _, r := range j.Where(func(r *journal.Record) bool { return !r.Ended() }) {
		locations = append(locations, r.Store)
	}
	out := make(map[string]bool)
	for _, l := range locations {
		out[s.own.ids.name(l)] = true
	}
	return out, nil
}

// forgetStore removes the file of a store, unless this agent has looked for that store. The lock is held meanwhile: a
// store that is looked for later finds no file.
func (s *Stores) forgetStore(name string) (gone bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == s.own.ids.name(s.own.location) {
		return false, nil
	}
	for location := range s.named {
		if name == s.own.ids.name(location) {
			return false, nil
		}
	}
	if err := os.Remove(filepath.Join(s.own.ids.dir, name)); err != nil {
		return false, fmt.Errorf("forget a store: %w", err)
	}
	return true, nil
}

// files returns the files of all stores, the one that was opened least recently first.
func (s *storeIDs) files() (out []fs.FileInfo, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		if info, err := e.Info(); err == nil { // else an operator has deleted it
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	if err != nil {
		return nil, fmt.Errorf("list the stores that are remembered: %w", err)
	}
	return out, nil
}
