package adopt

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rollback"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// ErrAlive is the kind of error if the controller of the old cluster may be alive.
var ErrAlive = errors.New("the old cluster's controller may be alive")

// mayTake returns nil if the old cluster's controller is dead. If a third cluster has taken over its snapshots before,
// that cluster's controller must be dead, too.
func (a *adoption) mayTake(ctx context.Context) error {
	by, err := rollback.TakenBy(ctx, a.Stores, a.Location, a.From)
	if err != nil {
		return err
	}
	if by != "" && !validID(by) {
		return fmt.Errorf("store %s says that %.80q has adopted the snapshots of cluster %s, which is no cluster: "+
			"remove diapause_clusters/%s.taken.json there", a.Location, by, a.From, a.From)
	}
	err = a.dead(ctx, a.From)
	if by != "" && by != a.own {
		err = errors.Join(err, a.dead(ctx, by))
	}
	return err
}

// dead returns nil if the controller of a cluster is dead.
func (a *adoption) dead(ctx context.Context, cluster string) error {
	at, err := rollback.Sign(ctx, a.Stores, a.Location, cluster)
	if err != nil {
		return err
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	age := now.Sub(at)
	switch {
	case at.IsZero() && a.Ended:
		return nil
	case at.IsZero():
		return fmt.Errorf("%w: that of cluster %s has left no sign of life in store %s, as earlier versions do not: if it "+
			"has ended for good, say so (--old-controller-ended)", ErrAlive, cluster, a.Location)
	case age < -rollback.MaxAhead && a.Ended:
		return nil
	case age < -rollback.MaxAhead:
		return fmt.Errorf("%w: the last sign of life of cluster %s in store %s is in the future (%s): if its controller "+
			"has ended for good, say so (--old-controller-ended)", ErrAlive, cluster, a.Location, at.Format(time.RFC3339))
	case age < rollback.AliveTime:
		return fmt.Errorf("%w: that of cluster %s has left a sign of life in store %s at %s: uninstall Diapause there, and "+
			"try again after %s", ErrAlive, cluster, a.Location, at.Format(time.RFC3339),
			at.Add(rollback.AliveTime).Format(time.RFC3339))
	}
	return nil
}

// now asks the API server what time it is.
func (a *adoption) now(ctx context.Context) (time.Time, error) {
	if err := a.identify(ctx); err != nil {
		return time.Time{}, err
	}
	return a.Now()
}

// take notes in the store that this cluster has adopted the snapshots, and makes their PodSnapshots. A snapshot that
// cannot be taken over does not stop the others.
func (a *adoption) take(ctx context.Context, r *Report) error {
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	if err := rollback.Take(ctx, a.Stores, a.Location, a.From, a.own, now); err != nil {
		return err
	}
	if err := a.mayTake(ctx); err != nil { // it may have come back just now; from here on it sees the note
		return err
	}
	failed := 0
	var last *podsnapshotv1.PodSnapshot
	for i := range r.Snapshots {
		s := &r.Snapshots[i]
		if s.Not != "" || s.Done {
			continue
		}
		if err := a.apart(ctx, last, s.object); err != nil {
			return err
		}
		if err := a.make(ctx, s.object); err != nil {
			s.Not, failed = err.Error(), failed+1
			continue
		}
		s.Done, last = true, s.object
	}
	if failed > 0 {
		return fmt.Errorf("%d snapshots were not adopted: see above, and run it again", failed)
	}
	return nil
}

// apart waits until two PodSnapshots of a namespace get creation times that differ, if their names would say the
// opposite of which one is newer.
func (a *adoption) apart(ctx context.Context, last, next *podsnapshotv1.PodSnapshot) error {
	if last == nil || last.Namespace != next.Namespace || next.Name < last.Name {
		return nil
	}
	select {
	case <-time.After(apart):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// make makes a PodSnapshot, or completes one that an earlier run has made.
func (a *adoption) make(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	want := s.DeepCopy()
	err := a.Client.Create(ctx, s)
	if apierrors.IsAlreadyExists(err) {
		if err = a.Client.Get(ctx, client.ObjectKeyFromObject(want), s); err == nil && !same(s, want) {
			return errors.New("there is a PodSnapshot with its name, which is left as it is")
		}
	}
	if err != nil {
		return fmt.Errorf("create its PodSnapshot: %w", err)
	}
	before := s.DeepCopy()
	if !rules.SetProgress(s, rules.Progress{Spooled: true, Replicated: true, StoredAt: a.Location}) {
		return nil
	}
	if err := a.Client.Status().Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("status of its PodSnapshot: %w", err)
	}
	return nil
}
