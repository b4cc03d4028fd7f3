package sweep

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// findAllLost is findLost for all stores that this process must sweep. It reads the PodSnapshots from the cache, or
// from the API server: after the cluster was brought back from a backup, the cache is behind until its watch begins
// anew.
func (sw *Sweeper) findAllLost(ctx context.Context, cached bool) error {
	locations, err := sw.mine(ctx)
	if err != nil || len(locations) == 0 {
		return err
	}
	list := sw.Objects.List
	if !cached {
		list = sw.Objects.Live.List
	}
	var errs []error
	for _, location := range locations {
		if err := sw.findLost(ctx, location, list); err != nil {
			errs = append(errs, fmt.Errorf("what store %s has lost: %w", location, err))
		}
	}
	return errors.Join(errs...)
}

// findLost says in the statuses of PodSnapshots whether the store at a location still has their data. It may lack that
// of PodSnapshots that were deleted, and came back with a backup of etcd.
func (sw *Sweeper) findLost(ctx context.Context, location string, list objects.List) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	said, err := sw.saidIn(ctx, location, list) // before the listing: what is stored meanwhile does not count
	if err != nil || len(said) == 0 {
		return err
	}
	var errs []error
	found := make(map[snapshot.Key]bool)
	if err := sw.Stores.Stored(ctx, location, func(e storage.Listed) error {
		if said[e.Key] != nil {
			found[e.Key] = true
		}
		return nil
	}); err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	looks := 0
	for k, s := range said {
		if found[k] == !rules.DataLost(s) {
			continue
		}
		if looks++; looks > maxLooks {
			break
		}
		if err := sw.setLost(ctx, k, location); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// saidIn returns the PodSnapshots of which this process must say whether the store at a location has their data.
func (sw *Sweeper) saidIn(ctx context.Context, location string, list objects.List) (
	map[snapshot.Key]*podsnapshotv1.PodSnapshot, error,
) {
	var all podsnapshotv1.PodSnapshotList
	if err := list(ctx, &all); err != nil {
		return nil, fmt.Errorf("read PodSnapshots: %w", err)
	}
	said := make(map[snapshot.Key]*podsnapshotv1.PodSnapshot)
	for i := range all.Items {
		if s := &all.Items[i]; rules.StoredAt(s) == location && stored(s) && sw.Answers(s) {
			said[objects.KeyOf(s)] = s
		}
	}
	return said, nil
}

// stored reports whether a PodSnapshot says that its store has its data, or has lost it. One of a sleep serves a pod
// that has it on its node.
func stored(s *podsnapshotv1.PodSnapshot) bool {
	return s.DeletionTimestamp == nil && !rules.OfSleep(s) &&
		(rules.Replicated(s) || rules.NodeLocal(s) || rules.DataLost(s))
}

// setLost writes down whether the data of a PodSnapshot is lost. It asks the API server and the store itself.
func (sw *Sweeper) setLost(ctx context.Context, k snapshot.Key, location string) error {
	s := new(podsnapshotv1.PodSnapshot)
	if err := sw.Objects.Live.Get(ctx, objects.Named(k), s); err != nil || !stored(s) {
		return client.IgnoreNotFound(err)
	}
	m, err := sw.Stores.StoredManifest(ctx, k, location)
	lost := errors.Is(err, storage.ErrNotFound)
	if err != nil && !lost {
		return err
	}
	if uid := s.Annotations[podsnapshotv1.AnnotationSnapshotUID]; uid != "" && !lost {
		lost = m.Meta.UID != uid // another snapshot has the name
	}
	before, changed := s.DeepCopy(), false
	if lost {
		changed = rules.SetDataLost(s)
	} else {
		changed = rules.SetDataFound(s, sw.OwnDisk)
	}
	if !changed {
		return nil
	}
	err = sw.Objects.Status().Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	sw.Objects.Unsure(k)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // after a conflict, the next time
		return fmt.Errorf("status of PodSnapshot %s: %w", k, err)
	}
	sw.log.Warn("a PodSnapshot says now whether its data is lost", "snapshot", k.String(), "store", location,
		"lost", lost)
	return nil
}
