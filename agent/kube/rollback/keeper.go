package rollback

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

const (
	// countEvery is how often a controller counts, if PodSnapshots were made meanwhile. A backup that is younger than
	// the last count may go unnoticed.
	countEvery = 15 * time.Second
	// againEvery is how often it counts while a store is not swept, or has not taken its mark.
	againEvery = 5 * time.Minute
	// storeTime bounds the reading or writing of a mark in one store.
	storeTime = 15 * time.Second
	// storesAtOnce is how many stores are asked at a time. One that does not answer must not delay all others.
	storesAtOnce = 8
	// conflicts is how often the Lease is tried again, which its holder renews at the same time.
	conflicts = 5
)

// Notes are where a controller leaves marks, each by the name of its cluster. *snapshots.Central implements it.
type Notes interface {
	// Note returns the note with that name in the store at location, or nil.
	Note(ctx context.Context, location, name string) ([]byte, error)
	// SetNote replaces the note with that name in the store at location.
	SetNote(ctx context.Context, location, name string, data []byte) error
}

// KeeperConfig is what a Keeper works with.
type KeeperConfig struct {
	Config
	Stores Notes
	Store  string                     // location of the agents' own store
	Mine   func(location string) bool // reports whether this process must sweep a store now
	Leads  func() bool                // reports whether this process does the cluster's duties now
}

// Keeper counts for a cluster, and keeps the marks in the stores that its controller sweeps. Its methods may be called
// concurrently.
type Keeper struct {
	KeeperConfig
	begun chan struct{} // a signal that this process does the duties now
	due   atomic.Bool   // PodSnapshots were made since the last count

	turn  sync.Mutex       // is held while the marks are looked at
	last  mark             // that this process has counted
	marks map[string]mark  // that are in the stores
	wrong map[string]error // why stores are not swept
	again time.Time        // when to count again because of these

	signed time.Time // when the last sign of life was left; only Run uses it
	told   sync.Map  // locations of stores of which it was told that another cluster has taken them over

	stopped atomic.Int64 // stores that are not swept because the cluster was brought back
}

// NewKeeper returns a keeper, which counts while Run runs.
func NewKeeper(c KeeperConfig) *Keeper {
	k := &Keeper{
		KeeperConfig: c, begun: make(chan struct{}, 1), marks: make(map[string]mark), wrong: make(map[string]error),
	}
	k.due.Store(true)
	return k
}

// Watch has the keeper count whenever a PodSnapshot was made.
func (k *Keeper) Watch(ctx context.Context, c cache.Cache) error {
	all, err := c.GetInformer(ctx, &podsnapshotv1.PodSnapshot{})
	if err == nil {
		_, err = all.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { k.due.Store(true) }})
	}
	if err != nil {
		return fmt.Errorf("watch PodSnapshots: %w", err)
	}
	return nil
}

// Stopped returns how many stores are not swept because the cluster was brought back from an older backup.
func (k *Keeper) Stopped() int64 { return k.stopped.Load() }

// Begin has the keeper count at once: this process begins to do the duties.
func (k *Keeper) Begin() {
	k.due.Store(true)
	select {
	case k.begun <- struct{}{}:
	default:
	}
}

// Run counts until ctx is done, while this process does the cluster's duties.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-k.begun:
		case <-time.After(wait.Jitter(countEvery, 0.2)):
		}
		if !k.Leads() {
			continue
		}
		if err := k.countIfDue(ctx); err != nil && ctx.Err() == nil {
			k.Logger.Warn("not counted: it is retried", "error", err)
		}
		if err := k.signIfDue(ctx); err != nil && ctx.Err() == nil {
			k.Logger.Debug("no sign of life in a store", "error", err)
		}
	}
}

func (k *Keeper) countIfDue(ctx context.Context) error {
	k.turn.Lock()
	defer k.turn.Unlock()
	if !k.due.Load() && (len(k.wrong) == 0 || time.Now().Before(k.again)) {
		return nil
	}
	return k.count(ctx)
}

// signIfDue leaves a sign of life in all stores, and looks whether another cluster has taken them over.
func (k *Keeper) signIfDue(ctx context.Context) error {
	if time.Since(k.signed) < signEvery {
		return nil
	}
	cluster, err := k.Objects.IDs.Identity(ctx)
	if err != nil {
		return err
	}
	now, err := k.Objects.Clock.Now()
	if err != nil {
		return err
	}
	locations, err := k.locations(ctx)
	if err != nil {
		return err
	}
	k.signed = time.Now()
	return errors.Join(each(locations, func(i int) error {
		return errors.Join(writeNote(ctx, k.Stores, locations[i], signOf(cluster), sign{Time: now}),
			k.Owns(ctx, locations[i]))
	})...)
}

// MaySweep returns nil if the store at a location may be swept. It counts first, if that is due.
func (k *Keeper) MaySweep(ctx context.Context, location string) error {
	if err := k.Owns(ctx, location); err != nil {
		return err
	}
	k.turn.Lock()
	defer k.turn.Unlock()
	if _, known := k.marks[location]; k.due.Load() || !known {
		if err := k.count(ctx); err != nil {
			return err
		}
	}
	m, known := k.marks[location]
	if !known {
		return errors.Join(errors.New("it has no mark of this cluster yet"), k.wrong[location])
	}
	s, err := k.state(ctx)
	if err != nil {
		return err
	}
	if err := s.check(m, "store "+location, k.now()); err != nil || k.wrong[location] == nil {
		return err
	}
	if err := k.count(ctx); err != nil { // an administrator has said that the mark no longer counts
		return err
	}
	return k.wrong[location]
}

// count counts on, and leaves the new mark in all stores that have a mark on the line. The caller has the turn.
func (k *Keeper) count(ctx context.Context) error {
	due := k.due.Swap(false) // before: what is made meanwhile counts the next time
	err := k.countAll(ctx)
	if err != nil && due {
		k.due.Store(true)
	}
	return err
}

func (k *Keeper) countAll(ctx context.Context) error {
	cluster, err := k.Objects.IDs.Identity(ctx)
	if err != nil {
		return err
	}
	locations, err := k.locations(ctx)
	if err != nil {
		return err
	}
	found := make([]mark, len(locations))
	unread := each(locations, func(i int) error {
		return readNote(ctx, k.Stores, locations[i], cluster, &found[i])
	})
	end, wrong, err := k.countOn(ctx, locations, found, unread)
	if err != nil {
		return err
	}
	unwritten := each(locations, func(i int) error {
		if wrong[i] != nil {
			return nil
		}
		return writeNote(ctx, k.Stores, locations[i], cluster, end)
	})
	for i := range locations {
		if wrong[i] == nil {
			wrong[i], found[i] = unwritten[i], end
		}
	}
	k.record(locations, wrong, found)
	return nil
}

// locations returns the locations of the stores that this process must sweep.
func (k *Keeper) locations(ctx context.Context) ([]string, error) {
	locations, err := k.Objects.Stores(ctx, k.Store)
	return slices.DeleteFunc(locations, func(location string) bool { return !k.Mine(location) }), err
}

// countOn counts on in the Lease. It returns the new mark, and why stores are not swept.
func (k *Keeper) countOn(ctx context.Context, locations []string, found []mark, unread []error) (mark, []error, error) {
	wrong := make([]error, len(locations))
	for try := 0; ; try++ {
		s, err := k.state(ctx)
		if err != nil {
			return mark{}, nil, err
		}
		now, err := k.Objects.Clock.Now()
		if err != nil {
			return mark{}, nil, err
		}
		var why []string
		for i, location := range locations {
			if wrong[i] = unread[i]; wrong[i] != nil {
				continue
			}
			if wrong[i] = s.check(found[i], "store "+location, now); wrong[i] != nil {
				why = append(why, location)
			}
		}
		l := s.line.next(k.last, strings.ToLower(rand.Text()[:10]))
		if _, err := s.write(l, fmt.Sprintf("%.4000s", strings.Join(why, " "))); err != nil {
			return mark{}, nil, err
		}
		switch err := k.Objects.Update(ctx, s.lease); {
		case err == nil:
			k.last = l.end()
			k.last.Time = now
			return k.last, wrong, nil
		case !apierrors.IsConflict(err) || try == conflicts:
			return mark{}, nil, fmt.Errorf("count on in Lease %s: %w", k.Lease, err)
		}
	}
}

// record notes which marks are in stores, and tells of those that are not on the line.
func (k *Keeper) record(locations []string, wrong []error, marks []mark) {
	before := k.wrong
	k.marks, k.wrong = make(map[string]mark), make(map[string]error)
	var stopped int64
	var news []error
	for i, location := range locations {
		err := wrong[i]
		if err == nil || errors.Is(err, ErrRolledBack) {
			k.marks[location] = marks[i]
		}
		if err == nil {
			continue
		}
		k.wrong[location] = err
		if !errors.Is(err, ErrRolledBack) {
			k.Logger.Debug("no mark left: it is retried before the next sweep", "store", location, "error", err)
			continue
		}
		if stopped++; !errors.Is(before[location], ErrRolledBack) {
			news = append(news, err)
		}
	}
	k.stopped.Store(stopped)
	if len(news) > 0 { // at once: the API server keeps one of several events
		k.tell(errors.Join(news...))
	}
	k.again = time.Now().Add(againEvery)
}

// each does something for each store, several at a time, and returns the errors.
func each(locations []string, do func(i int) error) []error {
	errs := make([]error, len(locations))
	var group errgroup.Group
	group.SetLimit(storesAtOnce)
	for i := range locations {
		group.Go(func() error {
			errs[i] = do(i)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errs
}
