package cache

import (
	"cmp"
	"container/list"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/zeebo/blake3"

	"diapause.dev/storage"
)

// Options of a Cache.
type Options struct {
	MaxBytes int64        // of all files together
	Logger   *slog.Logger // nil: slog.Default()
}

// ErrLocked: another process has the directory open.
var ErrLocked = errors.New("cache in use by another process")

// Cache is a directory of blocks. It is safe for concurrent use.
type Cache struct {
	dir  string
	max  int64
	log  *slog.Logger
	lock *flock.Flock

	mu      sync.Mutex
	bytes   int64
	entries map[id]*entry
	recent  *list.List // of *entry, the latest in front
	flights map[id]*flight
}

var _ storage.PackCache = (*Cache)(nil)

// id identifies a block: the digest of the object's name, and the block's number.
type id struct {
	object [16]byte
	index  int64
}

// entry is a block on disk.
type entry struct {
	id      id
	size    int64 // of the file
	touched time.Time
	element *list.Element
}

// Open opens the cache in a directory and shrinks it to its bound. If the directory does not exist, Open creates it.
func Open(dir string, o Options) (*Cache, error) {
	c := &Cache{
		dir: dir, max: o.MaxBytes, log: o.Logger,
		entries: map[id]*entry{}, recent: list.New(), flights: map[id]*flight{},
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if err := c.open(); err != nil {
		return nil, fmt.Errorf("open cache %s: %w", dir, err)
	}
	return c, nil
}

func (c *Cache) open() error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	c.lock = flock.New(filepath.Join(c.dir, "lock"))
	locked, err := c.lock.TryLock()
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if !locked {
		return ErrLocked
	}
	if err := c.scan(); err != nil {
		return errors.Join(err, c.lock.Close())
	}
	return nil
}

// scan records the blocks on disk, and removes files that are not blocks.
func (c *Cache) scan() error {
	var found []*entry
	dirs, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		files, err := os.ReadDir(filepath.Join(c.dir, d.Name()))
		if err != nil {
			return err
		}
		for _, f := range files {
			at, ok := parseName(d.Name(), f.Name())
			info, err := f.Info()
			if !ok || err != nil || info.Size() > blockSize+trailer {
				_ = os.Remove(filepath.Join(c.dir, d.Name(), f.Name())) // left by a dead process; else the next Open removes it
				continue
			}
			found = append(found, &entry{id: at, size: info.Size(), touched: info.ModTime()})
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(a.touched.UnixNano(), b.touched.UnixNano()) })
	for _, e := range found {
		c.insert(e)
	}
	return nil
}

// Bytes returns the size of all files.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Close allows another process to open the directory. No other method may be running or called later.
func (c *Cache) Close() error { return c.lock.Close() }

// insert adds a block that is on disk, and evicts others if need be. The caller holds c.mu, or nothing else uses c yet.
func (c *Cache) insert(e *entry) {
	if old := c.entries[e.id]; old != nil {
		c.forget(old)
	}
	e.element = c.recent.PushFront(e)
	c.entries[e.id] = e
	c.bytes += e.size
	for c.bytes > c.max {
		c.remove(c.recent.Back().Value.(*entry))
	}
}

// forget removes a block from the bookkeeping. The caller holds c.mu.
func (c *Cache) forget(e *entry) {
	c.recent.Remove(e.element)
	delete(c.entries, e.id)
	c.bytes -= e.size
}

// remove removes a block. The caller holds c.mu.
func (c *Cache) remove(e *entry) {
	c.forget(e)
	if err := os.Remove(c.path(e.id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.log.Warn("block of the cache not removed", "path", c.path(e.id), "error", err)
	}
}

// Drop removes the blocks of a range that turned out to be wrong, or was deleted.
func (c *Cache) Drop(object string, off, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := off / blockSize; i*blockSize < off+n; i++ {
		if e := c.entries[newID(object, i)]; e != nil {
			c.remove(e)
		}
	}
}

// Retain removes the blocks of all objects except these, and returns how many it removed. A block that is being fetched
// meanwhile may be removed or stay.
func (c *Cache) Retain(objects iter.Seq[string]) (removed int) {
	retained := map[[16]byte]bool{}
	for name := range objects {
		retained[newID(name, 0).object] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, e := range c.entries {
		if !retained[at.object] {
			c.remove(e)
			removed++
		}
	}
	return removed
}

func newID(object string, index int64) id {
	digest := blake3.Sum256([]byte(object))
	return id{object: [16]byte(digest[:16]), index: index}
}

// path returns the path of a block: <2 hex digits>/<30 hex digits>.<number>.
func (c *Cache) path(at id) string {
	name := hex.EncodeToString(at.object[:])
	return filepath.Join(c.dir, name[:2], name[2:]+"."+strconv.FormatInt(at.index, 10))
}

func parseName(dir, file string) (at id, ok bool) {
	name, number, ok := strings.Cut(file, ".")
	if !ok || len(dir) != 2 || len(name) != 30 {
		return at, false
	}
	if _, err := hex.Decode(at.object[:], []byte(dir+name)); err != nil {
		return at, false
	}
	index, err := strconv.ParseInt(number, 10, 32)
	at.index = index
	return at, err == nil && index >= 0 && strconv.FormatInt(index, 10) == number
}
