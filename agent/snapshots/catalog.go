package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"diapause.dev/agent/backlog"
	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Found is a snapshot and where it is.
type Found struct {
	Manifest   *storage.Manifest
	OnNode     bool             // in the spool, and not known to be damaged there
	Replicated bool             // in a store
	Store      string           // the location of that store
	Timeline   []snapshot.Stage // of the snapshot's checkpoint, as far as this node knows it
	Problem    string           // why it is not in a store, or is damaged on this node; empty: no problem is known
}

// Catalog knows which snapshots there are, and where. It removes and verifies them, too: those are pieces of their own,
// which know nothing of it. Its methods may be called concurrently.
type Catalog struct {
	stored        // what lies in the cluster's stores
	*Remover      // removing
	*verifier     // verifying and repairing
	*replications // requests to store snapshots elsewhere

	stores  *Stores
	readers *Readers
	journal *journal.Journal
	backlog *backlog.Backlog
	damage  *spoolDamage
}

// NewCatalog returns the catalog of the stores from which a remover removes. It calls changed with each record that it
// changes in the journal. It calls wake when a replication may be retried.
func NewCatalog(rm *Remover, j *journal.Journal, b *backlog.Backlog, changed func(*journal.Record),
	wake func(),
) *Catalog {
	s := rm.stores
	damage := &spoolDamage{spool: s.spool, log: s.log}
	r := &replications{stores: s, journal: j, backlog: b, changed: changed}
	return &Catalog{
		stored: stored{s}, stores: s, readers: rm.readers, journal: j, backlog: b, damage: damage, replications: r,
		Remover:  rm,
		verifier: &verifier{stores: s, damage: damage, replications: r, wake: wake, log: s.log},
	}
}

// Find returns one snapshot.
func (c *Catalog) Find(ctx context.Context, k snapshot.Key) (*Found, error) {
	far, err := c.stores.Everywhere(ctx)
	return c.findWith(ctx, k, far, err)
}

// FindAt is like Find, for a snapshot whose store is known.
func (c *Catalog) FindAt(ctx context.Context, k snapshot.Key, location string) (*Found, error) {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return c.findWith(ctx, k, nil, err)
	}
	return c.findWith(ctx, k, []*storage.Store{s}, nil)
}

func (c *Catalog) findWith(ctx context.Context, k snapshot.Key, far []*storage.Store, farErr error) (*Found, error) {
	f, err := c.findIn(ctx, k, far, farErr)
	if err != nil {
		return nil, err
	}
	f.remember(c.journal.Timeline(f.Manifest.Meta.UID))
	return f, nil
}

// remember sets the timeline that this node knows. A manifest's timeline ends before the manifest was written.
func (f *Found) remember(t []snapshot.Stage) {
	if len(t) > 0 {
		f.Timeline = t
	}
}

// findIn looks in the spool and in the given stores. farErr says why other stores could not be opened.
func (c *Catalog) findIn(ctx context.Context, k snapshot.Key, far []*storage.Store, farErr error) (*Found, error) {
	f := &Found{}
	m, err := c.stores.spool.Manifest(ctx, k)
	if err == nil {
		f.Manifest, f.OnNode = m, true
	}
	errs := []error{err, farErr}
	for _, s := range far {
		m, err := farManifest(ctx, s, k, f.OnNode)
		switch {
		case err != nil:
			errs = append(errs, err)
		case f.Manifest == nil:
			f.Manifest, f.Replicated, f.Store = m, true, s.Backend().Location()
		case m.Meta.UID == f.Manifest.Meta.UID: // another snapshot may have that name there
			f.Replicated, f.Store = true, s.Backend().Location()
		}
	}
	if f.Manifest == nil {
		return nil, notOnNode(k, errs)
	}
	f.Timeline = f.Manifest.Meta.Timeline
	if f.OnNode {
		c.examine(ctx, f)
	}
	return f, nil
}

// examine finds out what is wrong with a snapshot that is in the spool.
func (c *Catalog) examine(ctx context.Context, f *Found) {
	reason, err := c.stores.spool.Damaged(ctx, f.Manifest.Meta.Key)
	if err != nil {
		reason = err.Error()
	}
	f.OnNode, f.Problem = reason == "", reason
	if reason == "" && !f.Replicated {
		f.Problem = c.backlog.Of(f.Manifest.Meta.UID)
	}
}

// farManifest returns the manifest from a store. If the spool has the snapshot, too, it waits no longer than lookTime.
func farManifest(ctx context.Context, far *storage.Store, k snapshot.Key, onNode bool) (*storage.Manifest, error) {
	if onNode {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookTime)
		defer cancel()
	}
	return far.Manifest(ctx, k)
}

// listTime bounds how long a list waits for one store. If a store does not answer in time, the list has the rest.
const listTime = 20 * time.Second

// List returns all snapshots of a namespace (empty: of all namespaces) in the spool and in the stores, sorted by key.
// damaged describes the snapshots that cannot be read. If a store cannot be reached, err names it, and found still has
// what the other stores hold.
func (c *Catalog) List(ctx context.Context, namespace string) (found []*Found, damaged []string, err error) {
	keys := make(map[snapshot.Key]bool)
	collect := func(e storage.Listed) error {
		keys[e.Key] = true
		return nil
	}
	open, away := c.stores.Everywhere(ctx)
	var far []*storage.Store
	for _, s := range append(open, c.stores.spool) {
		look, cancel := context.WithTimeout(ctx, listTime)
		err := s.List(look, namespace, collect)
		cancel()
		if err != nil {
			away = errors.Join(away, fmt.Errorf("list %s: %w", s.Backend().Location(), err))
		} else if s != c.stores.spool {
			far = append(far, s)
		}
	}
	sorted := slices.SortedFunc(maps.Keys(keys), func(x, y snapshot.Key) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	timelines := c.journal.Timelines()
	for _, k := range sorted {
		f, err := c.findIn(ctx, k, far, nil)
		switch {
		case err == nil:
			f.remember(timelines[f.Manifest.Meta.UID])
			found = append(found, f)
		case errors.Is(err, storage.ErrUnavailable):
			away = errors.Join(away, err)
		case !errors.Is(err, storage.ErrNotFound): // else it was removed meanwhile
			damaged = append(damaged, fmt.Sprintf("%s: %v", k, err))
		}
	}
	return found, damaged, away
}

// HasLocal reports whether a snapshot is restorable on this node without a store. A snapshot that is known to be
// damaged is not.
func (c *Catalog) HasLocal(ctx context.Context, k snapshot.Key) (bool, error) {
	if ok, err := c.stores.spool.Has(ctx, k); !ok || err != nil {
		return false, err
	}
	reason, err := c.stores.spool.Damaged(ctx, k)
	return err == nil && reason == "", err
}

// Manifest returns the manifest of a snapshot, from the spool or the store at the given location.
func (c *Catalog) Manifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	h, err := c.readers.look(ctx, ID{Key: k}, location, (*storage.Store).Manifest)
	return h.manifest, err
}

// TrustedManifest is Manifest for callers that start something from the snapshot: see Readers.Open.
func (c *Catalog) TrustedManifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	h, err := c.readers.look(ctx, ID{Key: k}, location, (*storage.Store).TrustedManifest)
	return h.manifest, advise(err)
}

// lookTime bounds how long a request waits for the store to say whether it has a snapshot.
const lookTime = 5 * time.Second

// Exists reports whether a snapshot of this key is in the spool or in the store. Away says why the store cannot be
// reached, which then counts as one that does not have it: if it does, the replication will refuse the name.
func (c *Catalog) Exists(ctx context.Context, k snapshot.Key, location string) (ok bool, away, err error) {
	if ok, err := c.stores.spool.Has(ctx, k); ok || err != nil {
		return ok, nil, err
	}
	s, away := c.stores.Get(ctx, location)
	if away != nil {
		return false, away, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	ok, away = s.Has(ctx, k)
	return ok && away == nil, away, nil
}
