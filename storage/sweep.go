package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// DefaultGrace is how old a pack must be before it is swept, unless the caller says otherwise. A writer should commit
// within this time, counted from its first pack.
const DefaultGrace = 24 * time.Hour

// SweepOptions of Store.Sweep.
type SweepOptions struct {
	Namespace string        // "": all namespaces, each on its own
	Grace     time.Duration // 0: DefaultGrace. Writers that take longer may fail
	DryRun    bool          // delete nothing, only report what would be deleted

	// Found, if set, is called with each object that has been deleted or, in a dry run, would be.
	Found func(ObjectInfo)

	// Progress, if set, is called with the objects handled and their total, per namespace.
	Progress func(done, total int64)
}

// SweepResult counts packs, data keys, and objects beside snapshots.
type SweepResult struct {
	Named   int   // kept: a manifest names them
	Young   int   // kept: nothing names them, but they, or a claim to them, are younger than Grace
	Deleted int   // deleted or, in a dry run, to be deleted
	Bytes   int64 // of those deleted
}

// collector removes snapshots, and deletes what nothing needs any longer.
type collector struct {
	objects   *objects
	manifests *manifests
	names     names
	clock     clock
}

// Sweep deletes the objects that no manifest of their namespace names and that are older than Grace by the backend's
// own clock. It may run beside writers, readers and other sweeps, on any node. If a namespace has a young manifest that
// is damaged, or one in another format, Sweep deletes nothing there and the error names the manifest. Other namespaces
// are still swept. A damaged manifest that is older than damagedAge names nothing, and is logged. Sweep needs no keys.
//
// A sweep is for what nobody else removes. The packs of a snapshot that is removed go with it, at any age, unless
// another snapshot names or claims them (Remove). A writer that fails, a copy of the wrong size and a repair remove
// their own (packer.go, replicate.go, repair.go). The package comment has the protocol. Callers: Evictor.Tidy of a node
// for its spool (package snapshots, with its SweepGrace), the cluster's duties for stores (agent/kube/duty), and
// "diapause gc".
func (c *collector) Sweep(ctx context.Context, o SweepOptions) (SweepResult, error) {
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	namespaces := []string{o.Namespace}
	if o.Namespace == "" {
		var err error
		if namespaces, err = c.objects.namespaces(ctx); err != nil {
			return SweepResult{}, fmt.Errorf("sweep: %w", err)
		}
	}
	var result SweepResult
	var errs []error
	for _, ns := range namespaces {
		if err := c.sweepNamespace(ctx, ns, o, &result); err != nil {
			errs = append(errs, fmt.Errorf("sweep namespace %s: %w", ns, err))
		}
	}
	return result, errors.Join(errs...)
}

// sweep is one run over a namespace.
type sweep struct {
	objects   *objects
	manifests *manifests
	names     *names // what manifests name, as far as that is remembered
	clock     clock
	namespace string
	options   SweepOptions
	result    *SweepResult

	notices []string        // names of notices; the first notice is empty and tells the time
	now     time.Time       // when the sweep began, by the backend's clock
	named   map[string]bool // objects that a manifest names, and snapshots' directories
	damaged map[Key]bool    // manifests that name nothing, because they are damaged
	claimed map[string]bool // objects that a manifest is about to name, or a reader reads
}

func (c *collector) newSweep(namespace string, o SweepOptions, result *SweepResult) *sweep {
	return &sweep{
		objects: c.objects, manifests: c.manifests, names: &c.names, clock: c.clock,
		namespace: namespace, options: o, result: result,
		named: map[string]bool{}, claimed: map[string]bool{}, damaged: map[Key]bool{},
	}
}

func (c *collector) sweepNamespace(ctx context.Context, ns string, o SweepOptions, result *SweepResult) error {
	if err := format.CheckNamespace(ns); err != nil {
		return err
	}
	w := c.newSweep(ns, o, result)
	if err := w.begin(ctx); err != nil {
		return err
	}
	err := w.run(ctx)
	return errors.Join(err, w.end(ctx))
}

// clockGrain is how coarse a backend's clock may be. An object may be younger than it seems by this much.
const clockGrain = 10 * time.Millisecond

func (w *sweep) run(ctx context.Context) error {
	found, err := w.find(ctx) // before the manifests: objects that come later are not considered
	if err != nil {
		return err
	}
	failpoint.PacksListed.Hit()
	if err := w.readManifests(ctx); err != nil {
		return err
	}
	failpoint.ManifestsRead.Hit()
	var condemned []ObjectInfo
	for i, o := range found {
		switch {
		case w.isNamed(o.Name):
			w.result.Named++
		case w.now.Sub(o.Modified)+clockGrain < w.options.Grace:
			w.result.Young++
		default:
			condemned = append(condemned, o)
		}
		w.progress(i+1-len(condemned), len(found))
	}
	if w.options.DryRun {
		for _, o := range condemned {
			w.count(o)
		}
		return nil
	}
	done := len(found) - len(condemned)
	return w.rounds(ctx, condemned, func(n int) { w.progress(done+n, len(found)) })
}

// rounds handles all condemned objects, and reports how many it has handled.
func (w *sweep) rounds(ctx context.Context, condemned []ObjectInfo, done func(n int)) error {
	for all := len(condemned); len(condemned) > 0; {
		n, err := w.round(ctx, condemned)
		if err != nil {
			return err
		}
		condemned = condemned[n:]
		done(all - len(condemned))
	}
	return nil
}

func (w *sweep) progress(done, total int) {
	if w.options.Progress != nil {
		w.options.Progress(int64(done), int64(total))
	}
}

func (w *sweep) count(o ObjectInfo) {
	w.result.Deleted++
	w.result.Bytes += o.Size
	if w.options.Found != nil {
		w.options.Found(o)
	}
}

// round gives notice of as many condemned objects as one notice holds, reads claims and new manifests, and deletes the
// objects that are still neither named nor claimed. It returns how many it has handled: fewer if the notice has become
// too old for the rest.
func (w *sweep) round(ctx context.Context, condemned []ObjectInfo) (int, error) {
	condemned = condemned[:min(len(condemned), maxNotice)]
	n, err := w.give(ctx, condemned)
	if err != nil {
		return 0, err
	}
	failpoint.NoticeGiven.Hit()
	if err := w.readClaims(ctx); err != nil { // before the manifests: writers release claims after making them
		return 0, err
	}
	if err := w.readManifests(ctx); err != nil {
		return 0, err
	}
	for done := 0; done < len(condemned); {
		batch := condemned[done:min(len(condemned), done+deletes)]
		if err := n.stands(ctx); err != nil && done > 0 && ctx.Err() == nil {
			return done, nil // the rest needs another notice
		} else if err != nil {
			return done, err
		}
		if err := w.delete(ctx, batch); err != nil {
			return done, err
		}
		done += len(batch)
	}
	return len(condemned), nil
}

// deletes is how many objects are deleted at a time.
const deletes = 16

// delete deletes the objects of a batch that are neither named nor claimed.
func (w *sweep) delete(ctx context.Context, batch []ObjectInfo) error {
	var group errgroup.Group
	var gone []ObjectInfo
	for _, o := range batch {
		switch {
		case w.isNamed(o.Name):
			w.result.Named++
		case w.claimed[o.Name]:
			w.result.Young++
		default:
			gone = append(gone, o)
			group.Go(func() error { return w.objects.delete(ctx, o) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, o := range gone {
		w.count(o)
	}
	return nil
}

// find lists what may be swept: packs, data keys, and objects beside manifests.
func (w *sweep) find(ctx context.Context) (found []ObjectInfo, err error) {
	snapshots := format.SnapshotsDir(w.namespace)
	for _, prefix := range []string{format.PackDir(w.namespace), format.KeysDir(w.namespace), snapshots} {
		err := w.objects.backend.List(ctx, prefix, func(o ObjectInfo) error {
			_, isPack := format.ParsePackName(w.namespace, o.Name)
			_, isKey := format.ParseKeyName(w.namespace, o.Name)
			_, isManifest := format.ParseManifestName(o.Name)
			if isPack || isKey || prefix == snapshots && !isManifest {
				found = append(found, o)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// isNamed reports whether a manifest that has been read names an object, or is beside it.
func (w *sweep) isNamed(object string) bool {
	if rest, ok := strings.CutPrefix(object, format.SnapshotsDir(w.namespace)); ok {
		name, _, _ := strings.Cut(rest, "/")
		return w.named[format.SnapshotDir(Key{Namespace: w.namespace, Name: name})]
	}
	return w.named[object]
}

// manifestReads is how many manifests are read at a time.
const manifestReads = 8

// readManifests records what the manifests of the namespace name, in addition to what was recorded before. It does not
// read manifests that are remembered and cannot have been replaced since.
func (w *sweep) readManifests(ctx context.Context) error {
	listed := map[Key]bool{}
	var unknown []ObjectInfo
	err := w.objects.backend.List(ctx, format.SnapshotsDir(w.namespace), func(o ObjectInfo) error {
		key, ok := format.ParseManifestName(o.Name)
		if !ok {
			return nil
		}
		listed[key] = true
		if n := w.names.get(key, o); n != nil {
			w.note(key, n)
		} else {
			unknown = append(unknown, o)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.names.keep(w.namespace, listed)
	return w.readUnknown(ctx, unknown)
}

// readUnknown reads manifests, records what they name, and remembers those that are old enough. It does not remember
// damaged ones: each is read again before anything is deleted, in case only its reading failed.
func (w *sweep) readUnknown(ctx context.Context, manifests []ObjectInfo) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(manifestReads)
	read := make([]*named, len(manifests))
	for i, o := range manifests {
		group.Go(func() (err error) {
			read[i], err = w.readNames(ctx, o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, o := range manifests {
		key, _ := format.ParseManifestName(o.Name)
		if read[i] == nil {
			continue
		}
		w.note(key, read[i])
		if w.now.Sub(o.Modified) > nameAge && !w.damaged[key] {
			w.names.put(key, read[i])
		}
	}
	return nil
}

// damagedAge is how old a damaged manifest must be, by the backend's clock, to name nothing. Until then it stops the
// sweep, so that somebody can repair it. After that it does not: anything that was put into a manifest's place would
// keep the namespace's garbage for ever. What a repair needs is in the store that it copies from.
const damagedAge = 24 * time.Hour

// readNames reads what a listed manifest names. It returns nil if the manifest has been removed since. A manifest in
// another format is not damaged: another version of the program needs what it names.
func (w *sweep) readNames(ctx context.Context, o ObjectInfo) (*named, error) {
	key, _ := format.ParseManifestName(o.Name)
	e, err := w.manifests.envelope(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case errors.Is(err, ErrCorrupt) && w.now.Sub(o.Modified) >= damagedAge:
		return &named{damage: err}, nil
	}
	if err != nil {
		return nil, err
	}
	n := &named{modified: o.Modified, size: o.Size, lock: e.Lock}
	for _, p := range e.Packs {
		n.packs = append(n.packs, p.ID)
	}
	return n, nil
}

// note records what a manifest names. If the manifest is damaged, that is only what is beside it.
func (w *sweep) note(key Key, n *named) {
	w.named[format.SnapshotDir(key)] = true
	if n.damage != nil && !w.damaged[key] {
		w.objects.log.Warn("a manifest is damaged and keeps nothing any longer: repair or remove its snapshot", "snapshot",
			key.String(), "error", n.damage)
	}
	if w.damaged[key] = n.damage != nil; w.damaged[key] {
		return
	}
	for name := range n.objects(w.namespace) {
		w.named[name] = true
	}
}
