// Package sweep removes from stores what nothing needs any more: snapshots of this cluster that no PodSnapshot names,
// and data that no snapshot names. The controller sweeps the stores that it shares with all nodes. An agent sweeps
// those that only its node can see.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

const (
	// sweepEvery is how often stores are swept at least. The first sweep is about sweepFirst after the process's start,
	// or earlier.
	sweepEvery = 6 * time.Hour
	sweepFirst = 10 * time.Minute
	// lookAgain is how soon it is looked again for what is lost, if that failed after the cluster was brought back.
	lookAgain = 10 * time.Second
	// sweepSoonest is the shortest time between sweeps if OrphanAge is very short.
	sweepSoonest = 100 * time.Millisecond
	// sweepTime bounds the sweep of one store.
	sweepTime = time.Hour
	// maxLooks is how many snapshots of a store one sweep checks. The next sweep goes on with others.
	maxLooks = 1000
)

// errNotMine ends the sweep of a store that this process must not sweep any more.
var errNotMine = errors.New("another process sweeps this store now")

// Config is what a Sweeper works with.
type Config struct {
	Objects *objects.Objects
	Stores  Stores
	Judge   *age.Judge
	Mine    func(location string) bool // reports whether this process must sweep a store now
	OwnDisk bool                       // these stores are disks of this process's node
	// MaySweep returns why a store must not be swept, or nil. It is asked before each removal, too.
	MaySweep func(ctx context.Context, location string) error
	Bell     Bell // is rung when the stores are to be looked at now
	// Answers reports whether this process must say if the data of a PodSnapshot in such a store is lost.
	Answers   func(s *podsnapshotv1.PodSnapshot) bool
	Knows     func(key snapshot.Key) bool // reports whether this process still has work to do for a snapshot
	Lease     client.ObjectKey            // of the controller; its age says since when Diapause is installed
	Store     string                      // location of the agents' own store
	OrphanAge time.Duration               // age at which a snapshot that no PodSnapshot names is removed; 0: never
	Logger    *slog.Logger
}

// Stores are the stores of a cluster. *snapshots.Catalog and *snapshots.Central implement it.
type Stores interface {
	// Stored calls fn for each snapshot in the store at location.
	Stored(ctx context.Context, location string, fn func(storage.Listed) error) error
	// StoredManifest returns a snapshot's manifest from the store at location.
	StoredManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	Remove(ctx context.Context, r snapshots.Removal) error
	// SweepStore removes from the store at location what no snapshot there names.
	SweepStore(ctx context.Context, location string) (storage.SweepResult, error)
}

// Sweeper sweeps stores.
type Sweeper struct {
	Config
	log *slog.Logger
}

// Bell wakes a Sweeper when the stores are to be looked at now.
type Bell chan struct{}

// NewBell returns a bell that has not been rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring has the stores looked at now. It does not block.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// New returns a sweeper, which works while Run runs.
func New(c Config) *Sweeper { return &Sweeper{Config: c, log: c.Logger} }

// Run sweeps the stores that are this process's to sweep, from time to time until ctx is done.
func (sw *Sweeper) Run(ctx context.Context) {
	every := sweepEvery
	if sw.OrphanAge > 0 {
		every = max(sweepSoonest, min(every, sw.OrphanAge/4))
	}
	after := make(map[string]snapshot.Key) // by store: the key at which its last sweep ended
	cached := true                         // after the cluster was brought back, the cache may lack what came back
	for pause := min(every, sweepFirst); ; {
		select {
		case <-time.After(wait.Jitter(pause, 0.2)):
		case <-sw.Bell:
			cached = false
		case <-ctx.Done():
			return
		}
		lost := sw.findAllLost(ctx, cached)
		cached = cached || lost == nil
		if pause = every; !cached {
			pause = min(every, lookAgain)
		}
		if err := errors.Join(lost, sw.sweepStores(ctx, after)); err != nil && ctx.Err() == nil {
			sw.log.Warn("stores not swept", "error", err)
		}
	}
}

// mine returns those of the cluster's stores that this process must sweep.
func (sw *Sweeper) mine(ctx context.Context) ([]string, error) {
	locations, err := sw.Objects.Stores(ctx, sw.Store)
	return slices.DeleteFunc(locations, func(location string) bool { return !sw.Mine(location) }), err
}

// sweepStores sweeps those of the cluster's stores that this process must sweep.
func (sw *Sweeper) sweepStores(ctx context.Context, after map[string]snapshot.Key) error {
	locations, err := sw.mine(ctx)
	if err != nil || len(locations) == 0 {
		return err
	}
	orphans, err := sw.orphans(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, location := range locations {
		if err := sw.MaySweep(ctx, location); err != nil {
			errs = append(errs, fmt.Errorf("store %s: %w", location, err))
			continue
		}
		s := sweep{Sweeper: sw, store: location, orphans: orphans, log: sw.log.With("store", location)}
		after[location], err = s.run(ctx, after[location])
		if err != nil {
			errs = append(errs, fmt.Errorf("store %s: %w", location, err))
		}
	}
	return errors.Join(errs...)
}

// orphans returns the rule for which snapshots without a PodSnapshot are removed now. It is nil if none are. It fails
// if it is not certain what time it is.
func (sw *Sweeper) orphans(ctx context.Context) (*rules.Orphans, error) {
	// The Lease is created and deleted with the installation. The answer also says what time it is.
	lease := new(coordinationv1.Lease)
	if err := sw.Objects.Live.Get(ctx, sw.Lease, lease); err != nil {
		return nil, fmt.Errorf("read Lease %s: %w", sw.Lease, err)
	}
	now, err := sw.Judge.Now()
	if err != nil || sw.OrphanAge <= 0 {
		return nil, err
	}
	id, err := sw.Objects.IDs.Identity(ctx)
	if err != nil {
		return nil, err
	}
	return &rules.Orphans{Cluster: id, Since: lease.CreationTimestamp.Time, Before: now.Add(-sw.OrphanAge)}, nil
}

// sweep is one run over a store.
type sweep struct {
	*Sweeper
	store   string
	orphans *rules.Orphans // or nil
	log     *slog.Logger

	removed, failed int
}

// run removes orphans among the next snapshots after a key, and then everything that no snapshot of the store needs.
// It returns the key after which the next run must go on.
func (s *sweep) run(ctx context.Context, after snapshot.Key) (last snapshot.Key, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	began := time.Now()
	var picked []storage.Listed
	if s.orphans != nil {
		if picked, last, err = s.unnamed(ctx, after); err != nil {
			return after, err
		}
	}
	for _, e := range picked {
		if err := s.look(ctx, e); ctx.Err() != nil || errors.Is(err, errNotMine) {
			return after, err
		} else if after = e.Key; err != nil {
			s.failed++
			s.log.Warn("snapshot not swept", "snapshot", e.Key.String(), "error", err)
		}
	}
	r, err := s.Stores.SweepStore(ctx, s.store)
	s.log.Info("store swept", "unnamed", len(picked), "removed", s.removed, "failed", s.failed, "more",
		last != snapshot.Key{},
		"packs", r.Deleted, "bytes", r.Bytes, "took", time.Since(began))
	return last, err
}

// unnamed lists the next snapshots after a key that are not young, and of which neither the cache nor this process
// knows.
func (s *sweep) unnamed(ctx context.Context, after snapshot.Key) ([]storage.Listed, snapshot.Key, error) {
	w := window{after: after, most: maxLooks}
	err := s.Stores.Stored(ctx, s.store, func(e storage.Listed) error {
		if e.Modified.After(s.orphans.Before) || s.Knows(e.Key) {
			return nil
		}
		named, err := s.Objects.PodSnapshot(ctx, e.Key)
		if err == nil && named == nil {
			w.add(e)
		}
		return err
	})
	if err != nil {
		return nil, after, fmt.Errorf("list snapshots: %w", err)
	}
	picked, last := w.result()
	return picked, last, nil
}

// look removes a snapshot if it is an orphan.
func (s *sweep) look(ctx context.Context, e storage.Listed) error {
	m, err := s.Stores.StoredManifest(ctx, e.Key, s.store)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	why := s.orphans.Spared(&m.Meta, e.Modified)
	if why == "" {
		if why, err = s.wanted(ctx, &m.Meta); err != nil {
			return err
		}
	}
	log := s.log.With("snapshot", e.Key.String())
	if why != "" {
		log.Debug("snapshot left alone", "reason", why)
		return nil
	}
	if !s.Mine(s.store) {
		return errNotMine
	}
	if err := s.MaySweep(ctx, s.store); err != nil {
		return err
	}
	if err := s.Stores.Remove(ctx, snapshots.Removal{
		ID: snapshots.ID{Key: e.Key, UID: m.Meta.UID}, From: snapshots.FromStore, Location: s.store, Exact: true,
	}); err != nil {
		return err
	}
	s.removed++
	o := m.Meta.Origin
	log.Info("snapshot removed that no PodSnapshot names", "uid", m.Meta.UID, "created", m.Meta.Created, "pod",
		e.Key.Namespace+"/"+o.Pod, "node", o.Node)
	return nil
}

// wanted asks the API server, and returns why there may be a PodSnapshot for a snapshot, now or later. It is empty if
// there can be none.
func (s *sweep) wanted(ctx context.Context, m *snapshot.Meta) (why string, err error) {
	var of podsnapshotv1.PodSnapshotList // a Get would also return NotFound if the kind were not defined
	if err := s.Objects.Live.List(ctx, &of, client.InNamespace(m.Namespace),
		client.MatchingFields{metav1.ObjectNameField: m.Name}); err != nil {
		return "", fmt.Errorf("look for PodSnapshot %s: %w", m.Key, err)
	}
	if len(of.Items) > 0 {
		return "a PodSnapshot names it", nil
	}
	if m.Origin.Node == "" {
		return "it does not say on which node it was made", nil
	}
	if gone, err := s.Objects.NodeGone(ctx, m.Origin.Node); err != nil || gone {
		return "", err
	}
	silent, err := s.Objects.NodeSilent(ctx, m.Origin.Node)
	if silent {
		why = "its node does not answer, and may still know of it"
	}
	return why, err
}
