package snapshots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// copies says in which places a snapshot is.
type copies struct {
	spool bool
	own   bool // in the agent's own store
	named bool // in a store that the cluster names, at the location that a removal is given
}

// removing is one kind of removal and what it guarantees.
type removing struct {
	name   string
	remove func(ctx context.Context, w *removalRig, k snapshot.Key, uid string) error
	from   copies // the places that it removes from
	// reading is the error if a restore reads a snapshot with the key, with %s for the key. Empty: that does not matter.
	reading string
	spooled bool // nothing is refused if the spool does not have the snapshot
	missing bool // it is an error if no place has the snapshot
	keyed   bool // it knows no UID
	exact   bool // an empty UID is no other one's, and what is damaged stays
	central bool // the controller removes: it has stores and locks of its own
}

// allRemoving are all kinds.
var allRemoving = []removing{
	{
		name: "everywhere, not in use", from: copies{spool: true, own: true, named: true}, missing: true, keyed: true,
		reading: "remove snapshot %s: in use: pods are being restored from it; try again when they are loaded",
		remove: func(ctx context.Context, w *removalRig, k snapshot.Key, _ string) error {
			return w.catalog.Remove(ctx, Removal{ID: ID{Key: k}, From: FromEverywhere})
		},
	},
	{
		name: "spool and store", from: copies{spool: true, named: true},
		remove: func(ctx context.Context, w *removalRig, k snapshot.Key, uid string) error {
			return w.catalog.Remove(ctx, Removal{ID{k, uid}, FromSpool | FromStore, w.named, InUseIgnored, false})
		},
	},
	{
		name: "spool", from: copies{spool: true},
		remove: func(ctx context.Context, w *removalRig, k snapshot.Key, uid string) error {
			return w.catalog.Remove(ctx, Removal{ID: ID{k, uid}, From: FromSpool, InUse: InUseIgnored})
		},
	},
	{
		name: "spool, not in use", from: copies{spool: true}, reading: "forget snapshot %s: in use", spooled: true,
		remove: func(ctx context.Context, w *removalRig, k snapshot.Key, uid string) error {
			return w.catalog.Remove(ctx, Removal{ID: ID{k, uid}, From: FromSpool})
		},
	},
	{
		name: "store, not in use, exactly", from: copies{named: true}, reading: "remove snapshot %s: in use",
		exact: true,
		remove: func(ctx context.Context, w *removalRig, k snapshot.Key, uid string) error {
			return w.catalog.Remove(ctx, Removal{ID{k, uid}, FromStore, w.named, InUseFails, true})
		},
	},
	{
		name: "controller, store", from: copies{named: true}, central: true,
		remove: func(ctx context.Context, w *removalRig, k snapshot.Key, uid string) error {
			return w.central.Remove(ctx, Removal{ID{k, uid}, FromStore, w.named, InUseIgnored, false})
		},
	},
	{
		name: "controller, store, exactly", from: copies{named: true}, exact: true, central: true,
		remove: func(ctx context.Context, w *removalRig, k snapshot.Key, uid string) error {
			return w.central.Remove(ctx, Removal{ID{k, uid}, FromStore, w.named, InUseFails, true})
		},
	},
}

// removalRig is a node whose cluster names a store, and the cluster's controller.
type removalRig struct {
	*rig
	cluster *removals
	central *Central
	named   string                    // location of the store that the cluster names
	far     *storage.Store            // that store
	asleep  map[snapshot.Key]bool     // snapshots of UID "u" that a sleeping pod needs
	deleted func(object string) error // before an object of a store is deleted; or nil
}

func newRemovalRig(t *testing.T) *removalRig {
	t.Helper()
	w := &removalRig{named: "dir:" + madeStore(t), asleep: make(map[snapshot.Key]bool)}
	w.cluster = &removals{store: w.named}
	w.rig = newRigWith(t, w.cluster, Options{Measure: func(b storage.Backend) storage.Backend { return watched{b, w} }})
	w.catalog.needed = func(k snapshot.Key, uid string) string {
		if w.asleep[k] && (uid == "" || uid == "u") {
			return "n/sleeper"
		}
		return ""
	}
	var err error
	if w.far, err = w.stores.Get(t.Context(), w.named); err != nil {
		t.Fatal(err)
	}
	if w.central, err = OpenCentral(Options{Store: w.named, Logger: journaltest.Quiet}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.central.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// watched is the backend of a store whose deletions a test sees.
type watched struct {
	storage.Backend
	w *removalRig
}

func (b watched) Delete(ctx context.Context, object string) error {
	if b.w.deleted != nil {
		if err := b.w.deleted(object); err != nil {
			return err
		}
	}
	return b.Backend.Delete(ctx, object)
}

// places returns the stores that a snapshot may be in, the spool first.
func (w *removalRig) places(t *testing.T) []*storage.Store {
	t.Helper()
	return []*storage.Store{w.stores.spool, w.own(t), w.far}
}

// list returns whether the snapshot is in each of the places.
func (c copies) list() []bool { return []bool{c.spool, c.own, c.named} }

// put writes a snapshot of UID "u" into some places.
func (w *removalRig) put(t *testing.T, k snapshot.Key, where copies) {
	t.Helper()
	for i, s := range w.places(t) {
		if where.list()[i] {
			put(t, s, k)
		}
	}
}

// where returns the places that a snapshot is in.
func (w *removalRig) where(t *testing.T, k snapshot.Key) copies {
	t.Helper()
	var in [3]bool
	for i, s := range w.places(t) {
		var err error
		if in[i], err = s.Has(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	return copies{in[0], in[1], in[2]}
}

// read has a restore read a snapshot, as long as remove runs.
func (w *removalRig) read(k snapshot.Key, remove func()) {
	reader := &Reader{ID: ID{k, "u"}}
	w.readers.mu.Lock()
	w.readers.all[reader.ID] = reader
	w.readers.mu.Unlock()
	defer func() {
		w.readers.mu.Lock()
		defer w.readers.mu.Unlock()
		delete(w.readers.all, reader.ID)
	}()
	remove()
}

// want returns what a removal leaves of a snapshot of UID "u", and its error, "" for none.
func (r *removing) want(k snapshot.Key, c removalCase) (left copies, failure string) {
	switch {
	case r.spooled && !c.where.spool:
		return c.where, ""
	case r.from.spool && c.asleep && c.uid != "another":
		return c.where, fmt.Sprintf("remove snapshot %s: in use: pod n/sleeper sleeps, and is woken from it: wake or delete "+
			"the pod first", k)
	case r.reading != "" && c.reading:
		return c.where, fmt.Sprintf(r.reading, k)
	case c.uid == "another" || c.uid == "" && r.exact:
		return c.where, ""
	}
	left = copies{c.where.spool && !r.from.spool, c.where.own && !r.from.own, c.where.named && !r.from.named}
	if r.missing && left == c.where {
		failure = fmt.Sprintf("snapshot %s: not found, neither on this node nor in the store", k)
	}
	return left, failure
}

// removalCase is what a removal finds.
type removalCase struct {
	where           copies
	reading, asleep bool
	uid             string // that is removed
}

// cases returns all combinations of what a removal may find. That the agent's own store has the snapshot matters to
// those alone that remove from there. UIDs matter only to what is there.
func (r *removing) cases() (all []removalCase) {
	for i := range 8 * 2 * 2 {
		c := removalCase{copies{i&1 != 0, i&2 != 0, i&4 != 0}, i&8 != 0, i&16 != 0, r.uid()}
		if r.from.own || !c.where.own {
			all = append(all, c)
		}
		if !r.keyed && c.where == (copies{spool: true, named: true}) {
			for _, c.uid = range []string{"", "another"} {
				all = append(all, c)
			}
		}
	}
	return all
}

// TestRemovals has each kind of removal remove a snapshot that is in any places, that a restore reads or none, that a
// pod sleeps on or none, by its UID, by another one, and without one.
func TestRemovals(t *testing.T) {
	w := newRemovalRig(t)
	for _, r := range allRemoving {
		t.Run(r.name, func(t *testing.T) {
			for i, c := range r.cases() {
				k := snapshot.Key{Namespace: fmt.Sprintf("n%d", i), Name: "s"}
				w.put(t, k, c.where)
				w.asleep[k] = c.asleep
				var err error
				remove := func() { err = r.remove(t.Context(), w, k, c.uid) }
				if c.reading {
					w.read(k, remove)
				} else {
					remove()
				}
				left, failure := r.want(k, c)
				if got := w.where(t, k); got != left || text(err) != failure {
					t.Errorf("%+v: left %+v, error %q\nwant %+v, error %q", c, got, text(err), left, failure)
				}
				if strings.Contains(failure, "in use") != errors.Is(err, errkind.ErrInUse) ||
					strings.Contains(failure, "not found") != errors.Is(err, storage.ErrNotFound) {
					t.Errorf("%+v: %v is of another kind", c, err)
				}
				w.clear(t, k)
			}
		})
	}
}

// text returns the text of an error, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// forEachRemoving runs a test for each kind of removal.
func forEachRemoving(t *testing.T, test func(t *testing.T, w *removalRig, r *removing, k snapshot.Key)) {
	t.Helper()
	for _, r := range allRemoving {
		t.Run(r.name, func(t *testing.T) {
			test(t, newRemovalRig(t), &r, snapshot.Key{Namespace: "n", Name: "s"})
		})
	}
}

// TestRemovalsOfOne: where another snapshot has the key, it stays, and this one is removed from the other places.
func TestRemovalsOfOne(t *testing.T) {
	forEachRemoving(t, func(t *testing.T, w *removalRig, r *removing, k snapshot.Key) {
		if r.keyed {
			return // it removes whatever has the key
		}
		for i, another := range w.places(t) {
			for _, s := range w.places(t) {
				if s != another {
					put(t, s, k)
				}
			}
			putAs(t, another, k, "another")
			if err := r.remove(t.Context(), w, k, "u"); err != nil {
				t.Error(err)
			}
			got, want := w.where(t, k).list(), []bool{!r.from.spool, !r.from.own, !r.from.named}
			want[i] = true
			if !slices.Equal(got, want) {
				t.Errorf("another one is in place %d: left %v, want %v", i, got, want)
			}
			if m, err := another.Manifest(t.Context(), k); err != nil || m.Meta.UID != "another" {
				t.Errorf("another one: %+v, %v", m, err)
			}
			w.clear(t, k)
		}
	})
}

// putAs writes an empty snapshot with that UID into a store.
func putAs(t *testing.T, s *storage.Store, k snapshot.Key, uid string) {
	t.Helper()
	wr, err := s.NewWriter(t.Context(), k, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wr.Commit(t.Context(), snapshot.Meta{Key: k, UID: uid}); err != nil {
		t.Fatal(err)
	}
}

// clear removes a snapshot from all places.
func (w *removalRig) clear(t *testing.T, k snapshot.Key) {
	t.Helper()
	for _, s := range w.places(t) {
		if err := s.Remove(t.Context(), k); err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
	}
}

// TestRemovalsOfDamaged: a damaged manifest is removed, although its UID is unknown, but not by who removes exactly one
// snapshot.
func TestRemovalsOfDamaged(t *testing.T) {
	forEachRemoving(t, func(t *testing.T, w *removalRig, r *removing, k snapshot.Key) {
		w.put(t, k, copies{true, true, true})
		for _, s := range w.places(t) {
			dir := strings.TrimPrefix(s.Backend().Location(), "dir:")
			if err := os.WriteFile(dir+"/n/snapshots/s/manifest", []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := r.remove(t.Context(), w, k, "u")
		want := copies{!r.from.spool, !r.from.own, !r.from.named}
		if r.exact {
			want = copies{true, true, true}
		}
		if got := w.where(t, k); got != want || r.exact != errors.Is(err, storage.ErrCorrupt) || !r.exact && err != nil {
			t.Errorf("left %+v, want %+v; %v", got, want, err)
		}
	})
}

// TestRemovalsInOrder: who removes everywhere begins with the stores, so that what a store still has is on this node,
// too. Others begin with this node. After a failure nothing more is removed.
func TestRemovalsInOrder(t *testing.T) {
	forEachRemoving(t, func(t *testing.T, w *removalRig, r *removing, k snapshot.Key) {
		if !r.from.named || r.central {
			return // a test does not see its deletions
		}
		w.put(t, k, copies{true, true, true})
		failure := errors.New("not deleted")
		var before []copies
		w.deleted = func(object string) error {
			if strings.HasSuffix(object, "manifest") {
				before = append(before, w.where(t, k))
			}
			return failure
		}
		err := r.remove(t.Context(), w, k, r.uid())
		if !errors.Is(err, failure) || len(before) != 1 || w.where(t, k) != before[0] {
			t.Errorf("%v, after that it is in %+v, before in %+v", err, w.where(t, k), before)
		}
		w.deleted = func(object string) error {
			if strings.HasSuffix(object, "manifest") {
				before = append(before, w.where(t, k))
			}
			return nil
		}
		if err := r.remove(t.Context(), w, k, r.uid()); err != nil {
			t.Error(err)
		}
		rest := copies{!r.from.spool, true, true}
		want := []copies{rest, rest}
		if r.from.own {
			all := copies{true, true, true}
			want = []copies{all, all, {true, false, true}}
		}
		if !slices.Equal(before, want) {
			t.Errorf("when manifests were deleted, it was in %+v, want %+v", before, want)
		}
	})
}

// uid returns the UID by which a snapshot of UID "u" is removed.
func (r *removing) uid() string {
	if r.keyed {
		return ""
	}
	return "u"
}

// TestRemovalsWithoutStore: if a store that is removed from cannot be reached, nothing is removed.
func TestRemovalsWithoutStore(t *testing.T) {
	forEachRemoving(t, func(t *testing.T, w *removalRig, r *removing, k snapshot.Key) {
		w.put(t, k, copies{spool: true, own: true})
		w.named = "dir:/proc/nowhere/store"
		w.cluster.store = w.named
		err := r.remove(t.Context(), w, k, r.uid())
		want := copies{spool: true, own: true}
		if !r.from.named {
			want.spool = false
		}
		if got := w.where(t, k); got != want || r.from.named != errors.Is(err, storage.ErrUnavailable) ||
			r.from.named && !strings.HasPrefix(err.Error(), "remove snapshot n/s: ") {
			t.Errorf("left %+v, want %+v; %v", got, want, err)
		}
	})
}

// TestRemovalsWait: a removal waits while the snapshot is replicated, repaired or evicted. What is refused is refused
// at once, and the cluster is asked while nothing is locked: it may have this node remove the snapshot.
func TestRemovalsWait(t *testing.T) {
	forEachRemoving(t, func(t *testing.T, w *removalRig, r *removing, k snapshot.Key) {
		all := copies{true, true, true}
		w.put(t, k, all)
		locks := w.stores.moving
		if r.central {
			locks = w.central.stores.moving
		}
		release, err := locks.Lock(t.Context(), k.String())
		if err != nil {
			t.Fatal(err)
		}
		stopped := errors.New("stopped")
		over, cancel := context.WithCancelCause(t.Context())
		cancel(stopped)
		if err := r.remove(over, w, k, r.uid()); !errors.Is(err, stopped) && !errors.Is(err, context.Canceled) ||
			w.where(t, k) != all {
			t.Errorf("%v, left %+v", err, w.where(t, k))
		}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		asked := 0
		if r.missing {
			asked = 1
		}
		if w.cluster.asked != asked {
			t.Errorf("the cluster was asked %d times, want %d", w.cluster.asked, asked)
		}
		if w.asleep[k] = true; r.from.spool {
			if err := r.remove(ctx, w, k, r.uid()); !errors.Is(err, errkind.ErrInUse) || w.cluster.asked != asked {
				t.Errorf("a pod sleeps on it: %v; asked %d times", err, w.cluster.asked)
			}
		}
		if w.asleep[k] = false; r.reading != "" {
			w.read(k, func() { err = r.remove(ctx, w, k, r.uid()) })
			if !errors.Is(err, errkind.ErrInUse) || w.cluster.asked != asked {
				t.Errorf("a restore reads it: %v; asked %d times", err, w.cluster.asked)
			}
		}
		release()
		if err := r.remove(t.Context(), w, k, r.uid()); err != nil {
			t.Error(err)
		}
	})
}

// TestRemovalsLeaveRecords: a removal changes no request in the journal, and tells the cluster of none: what is no
// longer here ends with its next replication.
func TestRemovalsLeaveRecords(t *testing.T) {
	forEachRemoving(t, func(t *testing.T, w *removalRig, r *removing, k snapshot.Key) {
		rec := journaltest.Record(1, journal.StageSpooled)
		rec.Key, rec.UID, rec.Store = k, "u", w.named
		journaltest.Put(t, w.journal, rec)
		w.put(t, k, copies{spool: true})
		if err := r.remove(t.Context(), w, k, r.uid()); err != nil {
			t.Error(err)
		}
		if now := w.journal.Get(rec.ID); now == nil || now.Stage != journal.StageSpooled || w.count(k) != 0 {
			t.Errorf("%+v; told %d times", now, w.count(k))
		}
		err := w.replicator.Replicate(t.Context(), rec, func(int64, int64) {})
		if r.from.spool != errors.Is(err, errkind.ErrNeverReplicated) || !r.from.spool && err != nil {
			t.Errorf("replicated: %v", err)
		}
	})
}

// TestRemovalOfInvalid: what an operator names is checked before anybody is asked.
func TestRemovalOfInvalid(t *testing.T) {
	w := newRemovalRig(t)
	err := allRemoving[0].remove(t.Context(), w, snapshot.Key{Namespace: "n", Name: ".."}, "")
	if !errors.Is(err, errkind.ErrInvalid) || w.cluster.asked != 0 {
		t.Errorf("%v; asked %d times", err, w.cluster.asked)
	}
}
