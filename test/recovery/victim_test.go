package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/storagetest"
)

// victim is the environment variable that makes the test binary the process that is killed: it
// names the directory of the two stores.
const victim = "DIAPAUSE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if path := os.Getenv(victim); path != "" {
		failpoint.Arm()
		fmt.Fprintln(os.Stderr, live(context.Background(), path))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

const (
	namespace = "ns"
	// keep is how many snapshots are kept; older ones are removed.
	keep = 3
	// files and chunks of a snapshot.
	chunks    = 12
	chunkSize = 3000
)

// node is a spool and the store that it is replicated to.
type node struct{ spool, store *storage.Store }

func openNode(ctx context.Context, path string) (*node, error) {
	n := &node{}
	for name, s := range map[string]**storage.Store{"spool": &n.spool, "store": &n.store} {
		b, err := dir.Open(filepath.Join(path, name))
		if err != nil {
			return nil, err
		}
		if *s, err = storage.Open(ctx, b, storage.Options{}); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *node) stores() []*storage.Store { return []*storage.Store{n.spool, n.store} }

// live does, over and over, what an agent does in its life: snapshots in a line, each replicated, old
// ones removed, both stores swept; now and then a snapshot is given up, or a pack in the store is
// found damaged and replaced. It goes on where its predecessor was killed.
func live(ctx context.Context, path string) error {
	n, err := openNode(ctx, path)
	if err != nil {
		return err
	}
	fmt.Println("alive")
	names, err := list(ctx, n.spool)
	if err != nil {
		return err
	}
	next := 0
	if len(names) > 0 {
		if _, err := fmt.Sscanf(names[len(names)-1], "s%d", &next); err != nil {
			return err
		}
		next++
	}
	for ; ; next++ {
		if err := n.day(ctx, next); err != nil {
			return fmt.Errorf("snapshot %d: %w", next, err)
		}
	}
}

func key(name string) storage.Key { return storage.Key{Namespace: namespace, Name: name} }

// day is one round of a life.
func (n *node) day(ctx context.Context, i int) error {
	if err := n.giveUp(ctx, i); err != nil {
		return err
	}
	name := fmt.Sprintf("s%08d", i)
	if err := n.write(ctx, name, i); err != nil {
		return err
	}
	for range 2 { // the second time, there is a damaged pack to replace
		if err := storage.Replicate(ctx, n.store, n.spool, key(name), nil); err != nil {
			return err
		}
		if err := n.damage(ctx, name); err != nil {
			return err
		}
	}
	if err := storage.Replicate(ctx, n.store, n.spool, key(name), nil); err != nil {
		return err
	}
	for _, s := range n.stores() {
		if err := retire(ctx, s); err != nil {
			return err
		}
		if _, err := s.Sweep(ctx, sweepNow); err != nil {
			return err
		}
	}
	return nil
}

// write makes a snapshot whose parent is the newest one. Most of its chunks are the parent's.
func (n *node) write(ctx context.Context, name string, i int) error {
	parent, err := n.newest(ctx)
	if err != nil {
		return err
	}
	w, err := n.spool.NewWriter(ctx, key(name), storage.WriterOptions{Parent: parent})
	if err != nil {
		return err
	}
	defer w.Abort()
	for c := range chunks {
		if err := w.File("pages.img").Chunk(storagetest.Bytes(uint64((i+c)/chunks*chunks+c), chunkSize)); err != nil {
			return err
		}
	}
	_, err = w.Commit(ctx, snapshot.Meta{})
	return err
}

// newest returns the newest snapshot of the spool, or nil.
func (n *node) newest(ctx context.Context) (*storage.Manifest, error) {
	names, err := list(ctx, n.spool)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	return n.spool.Manifest(ctx, key(names[len(names)-1]))
}

// giveUp begins a snapshot and aborts it.
func (n *node) giveUp(ctx context.Context, i int) error {
	w, err := n.spool.NewWriter(ctx, key("never"), storage.WriterOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	return w.File("pages.img").Chunk(storagetest.Bytes(uint64(i)+1<<32, chunkSize))
}

// damage truncates the newest pack of a snapshot in the store, of which the spool has a good copy.
// A process that is killed before it has repaired that would leave real damage, so the pack is one
// that no other snapshot names, and the manifest is taken away first.
func (n *node) damage(ctx context.Context, name string) error {
	m, err := n.store.Manifest(ctx, key(name))
	if err != nil {
		return err
	}
	pack := m.Packs[len(m.Packs)-1].ID
	if shared, err := n.isShared(ctx, name, pack); shared || err != nil {
		return err
	}
	if err := n.store.Backend().Delete(ctx, namespace+"/snapshots/"+name+"/manifest"); err != nil {
		return err
	}
	path := strings.TrimPrefix(n.store.Backend().Location(), "dir:")
	return os.Truncate(filepath.Join(path, namespace, "packs", pack.String()), 40)
}

// isShared reports whether another snapshot of the store names a pack.
func (n *node) isShared(ctx context.Context, name string, pack storage.PackID) (bool, error) {
	names, err := list(ctx, n.store)
	if err != nil {
		return false, err
	}
	for _, other := range names {
		m, err := n.store.Manifest(ctx, key(other))
		if err != nil {
			return false, err
		}
		if other != name && slices.ContainsFunc(m.Packs, func(p storage.Pack) bool { return p.ID == pack }) {
			return true, nil
		}
	}
	return false, nil
}

// retire removes all but the newest snapshots.
func retire(ctx context.Context, s *storage.Store) error {
	names, err := list(ctx, s)
	if err != nil {
		return err
	}
	for len(names) > keep {
		if err := s.Remove(ctx, key(names[0])); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		names = names[1:]
	}
	return nil
}

// sweepNow takes every pack that nothing names: here nobody else is writing.
var sweepNow = storage.SweepOptions{Grace: 1}

// list returns the names of a store's snapshots, the oldest first.
func list(ctx context.Context, s *storage.Store) (names []string, err error) {
	err = s.List(ctx, namespace, func(e storage.Listed) error {
		names = append(names, e.Key.Name)
		return nil
	})
	slices.Sort(names)
	return names, err
}
