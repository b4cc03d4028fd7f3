package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Readers holds the readers of the snapshots that sandboxes are being restored from. All restores of one snapshot share
// one reader. Its methods may be called concurrently.
type Readers struct {
	stores *Stores
	pool   *storage.Pool // of all readers
	uses   uses          // of snapshots in the spool
	life   *lifetime.Life
	log    *slog.Logger

	mu  sync.Mutex
	all map[ID]*Reader
}

// poolBytes bounds the decoded chunks of all snapshots that are open: eight times what one may have.
const poolBytes = 512 << 20

// OpenReaders returns a node's readers, which end with life. It reads from the state directory when snapshots were last
// used.
func OpenReaders(s *Stores, life *lifetime.Life) *Readers {
	rs := &Readers{stores: s, pool: storage.NewPool(poolBytes), life: life, log: s.log, all: make(map[ID]*Reader)}
	if err := rs.uses.open(filepath.Join(s.o.StateDir, usesFile)); err != nil {
		s.log.Warn("snapshots are evicted in the order in which they were made", "error", err)
	}
	return rs
}

// Retain adds a user to a reader that already has one.
func (rs *Readers) Retain(s *Reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s.users++
}

// Release removes a user from a reader. It closes the reader after the last user.
func (rs *Readers) Release(s *Reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.releaseLocked(s)
}

// PrefetchOnce calls f in the first call for this reader, and does nothing in later ones.
func (s *Reader) PrefetchOnce(f func()) { s.prefetched.Do(f) }

// Using reports whether a restore reads a snapshot of that key.
func (rs *Readers) Using(k snapshot.Key) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for id := range rs.all {
		if id.Key == k {
			return true
		}
	}
	return false
}

// ID names one snapshot. A key alone does not: once its snapshot is removed, another one may get the same key.
type ID struct {
	Key snapshot.Key
	UID string // empty: whichever has the key now
}

// Reader is a reader that all restores of one snapshot share, together with its decoded chunks.
type Reader struct {
	*storage.Reader
	ID       ID
	Manifest *storage.Manifest
	OnNode   bool           // the spool has it
	Far      *storage.Store // a store that has it, too, or nil
	users    int
	released chan struct{} // closed after the last user

	prefetched sync.Once
	fetching   atomic.Int32
	sought     *sought // of Far; or nil
	expected   atomic.Pointer[Expected]
}

// sought is a working set that is read while the manifest is.
type sought struct {
	over chan struct{} // closed when data and err are set
	data []byte
	err  error
}

// seekTime bounds how long a working set is read.
const seekTime = 30 * time.Second

// seek begins to read the working set that a store has under a key.
func (rs *Readers) seek(far *storage.Store, k snapshot.Key) *sought {
	set := &sought{over: make(chan struct{})}
	rs.life.Go(func() {
		defer close(set.over)
		ctx, cancel := context.WithTimeout(rs.life.Context(), seekTime)
		defer cancel()
		set.data, set.err = far.EncodedWorkingSet(ctx, k)
	})
	return set
}

// WorkingSet returns the snapshot's working set in the store that has the snapshot, too. Its errors are those of
// storage.Store.WorkingSet.
func (s *Reader) WorkingSet(ctx context.Context) ([]storage.ChunkRef, error) {
	switch {
	case s.Far == nil:
		return nil, fmt.Errorf("working set of %s: %w", s.ID.Key, storage.ErrNotFound)
	case s.sought == nil:
		return s.Far.WorkingSet(ctx, s.Manifest)
	}
	select {
	case <-s.sought.over:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.sought.err != nil {
		return nil, s.sought.err
	}
	return s.Manifest.DecodeWorkingSet(s.sought.data)
}

// Fetch calls f, which fetches what restores wait for.
func (s *Reader) Fetch(f func()) {
	s.fetching.Add(1)
	defer s.fetching.Add(-1)
	f()
}

// Fetching reports whether a call of Fetch is under way.
func (s *Reader) Fetching() bool { return s.fetching.Load() > 0 }

// Expect notes which chunks sandboxes that are restored from the snapshot are expected to wait for, in that order.
func (s *Reader) Expect(chunks []storage.ChunkRef) { s.expected.Store(newExpected(chunks, s.Place)) }

// Expected returns what Expect has noted last.
func (s *Reader) Expected() *Expected { return s.expected.Load() }

// Open returns the reader of a snapshot. If the agent has trusted keys and none of them has signed the snapshot, the
// error is storage.ErrUntrusted. Open holds no lock while it reads.
func (rs *Readers) Open(ctx context.Context, id ID, location string) (*Reader, error) {
	if s := rs.share(id); s != nil {
		rs.uses.note(s.ID.UID)
		return s, nil
	}
	var set *sought
	h, err := rs.look(ctx, id, location, func(s *storage.Store, ctx context.Context, k snapshot.Key) (
		*storage.Manifest, error,
	) {
		if s != rs.stores.spool {
			set = rs.seek(s, k)
		}
		return s.TrustedManifest(ctx, k)
	})
	if err != nil {
		return nil, advise(err)
	}
	if err := h.known(id); err != nil {
		return nil, err
	}
	id.UID = h.manifest.Meta.UID
	rs.uses.note(id.UID)
	s := &Reader{
		Reader: storage.ReaderOptions{Pool: rs.pool}.NewReader(h.manifest, h.stores...),
		ID:     id, Manifest: h.manifest, OnNode: h.onNode,
		released: make(chan struct{}), sought: set,
	}
	if len(h.stores) > 1 {
		s.Far = h.stores[1]
	}
	return rs.publish(s)
}

// share adds a user to a snapshot's reader and returns it, or nil if there is none.
func (rs *Readers) share(id ID) *Reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s := rs.all[id]
	if s != nil {
		s.users++
	}
	return s
}

// publish shares a fresh reader. If another reader of the same snapshot was published meanwhile, publish returns that
// one.
func (rs *Readers) publish(fresh *Reader) (*Reader, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s := rs.all[fresh.ID]
	if s == nil {
		s, rs.all[fresh.ID] = fresh, fresh
		rs.hold(s)
	} else if err := fresh.Close(); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", fresh.ID.Key, err)
	}
	s.users++
	return s, nil
}

// hold keeps the packs that a reader reads in the store that it reads them from.
func (rs *Readers) hold(s *Reader) {
	at := s.Far
	if s.OnNode {
		at = rs.stores.spool
	}
	if at != nil {
		holder{rs.life, rs.log}.hold(at, s.Manifest, s.released)
	}
}

// held is a snapshot and the stores that its bytes can be read from, the best first.
type held struct {
	manifest *storage.Manifest
	stores   []*storage.Store
	onNode   bool // the spool has it
}

// known refuses a snapshot of which the caller knows the name alone, if somebody who can write to the store may have
// put it in the place of an encrypted one. Only this node writes to its own disks.
func (h *held) known(id ID) error {
	from := h.stores[len(h.stores)-1]
	if _, own := disk(from.Backend().Location()); id.UID != "" || h.onNode || own {
		return nil
	}
	err := from.CheckUnknown(h.manifest)
	if errors.Is(err, storage.ErrUntrusted) {
		err = fmt.Errorf("%w: if it is from before encryption, add the line \"none\" to the key file of the namespace", err)
	}
	return err
}

// readManifest reads a snapshot's manifest from a store: Manifest, or TrustedManifest.
type readManifest func(s *storage.Store, ctx context.Context, k snapshot.Key) (*storage.Manifest, error)

// look finds a snapshot: first in the spool, then in the store at the given location, or in any store if location is
// empty. It waits for an unreachable store only if the spool does not have the snapshot.
func (rs *Readers) look(ctx context.Context, id ID, location string, read readManifest) (held, error) {
	candidates, err := rs.candidates(location)
	if err != nil {
		return held{}, err
	}
	m, err := id.of(ctx, rs.stores.spool, read)
	if err == nil {
		stores := []*storage.Store{rs.stores.spool}
		for _, r := range candidates {
			if far := r.ready(); far != nil {
				stores = append(stores, far)
			}
		}
		return held{m, stores, true}, nil
	}
	errs := []error{err}
	for _, r := range candidates {
		far, err := r.Get(ctx)
		if err == nil {
			if m, err = id.of(ctx, far, read); err == nil {
				return held{m, []*storage.Store{rs.stores.spool, far}, false}, nil
			}
		}
		errs = append(errs, err)
	}
	return held{}, notOnNode(id.Key, errs)
}

// of returns the snapshot's manifest in a store. If another snapshot has its key there, the error is
// of kind ErrReplaced.
func (id ID) of(ctx context.Context, s *storage.Store, read readManifest) (*storage.Manifest, error) {
	m, err := read(s, ctx, id.Key)
	if err == nil && id.UID != "" && m.Meta.UID != id.UID {
		return nil, fmt.Errorf("%w: %w", errkind.ErrReplaced, storage.ErrNotFound)
	}
	return m, err
}

// candidates returns the stores that may hold a snapshot.
func (rs *Readers) candidates(location string) ([]*Remote, error) {
	if location == "" {
		return rs.stores.All(), nil
	}
	r, err := rs.stores.At(location)
	return []*Remote{r}, err
}

// notOnNode picks the error that says best why a snapshot cannot be read: another failure rather than "not found".
func notOnNode(k snapshot.Key, errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("snapshot %s: %w", k, err)
		}
	}
	for _, err := range errs {
		if errors.Is(err, errkind.ErrReplaced) {
			return fmt.Errorf("snapshot %s: %w", k, err)
		}
	}
	return fmt.Errorf("snapshot %s: %w, neither on this node nor in the store", k, storage.ErrNotFound)
}

// releaseLocked is Release. The caller holds rs.mu.
func (rs *Readers) releaseLocked(s *Reader) {
	if s.users--; s.users > 0 {
		return
	}
	if rs.all[s.ID] == s {
		delete(rs.all, s.ID)
	}
	close(s.released)
	if err := s.Close(); err != nil {
		rs.log.Warn("snapshot not closed", "snapshot", s.ID.Key.String(), "error", err)
	}
}
