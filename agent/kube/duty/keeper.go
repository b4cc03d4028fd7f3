package duty

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/kube/sightings"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// keeper decides how long PodSnapshots are kept, and ends deletions that their nodes do not end.
type keeper struct {
	objects   *objects.Objects
	sightings *sightings.Sightings
	stores    sharer
	removals  *removal.Removals
	judge     *age.Judge
	store     string // location of the agents' own store
	log       *slog.Logger
}

// sharer tells whether a store is visible to the controller and all nodes.
type sharer interface{ Shared(location string) bool }

// discard deletes exactly this version of a PodSnapshot.
func discard(ctx context.Context, o *objects.Objects, log *slog.Logger, s *podsnapshotv1.PodSnapshot,
	why string,
) error {
	log.Info("snapshot is deleted", "snapshot", objects.KeyOf(s).String(), "reason", why)
	err := o.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	return nil
}

// localPause is how often the node of a node-local snapshot is checked. There may be many such snapshots.
const localPause = 15 * time.Minute

// checkOrigin marks a snapshot as failed if its only copy was on a node that has left the cluster. It returns when to
// check again, or 0 if the snapshot no longer depends on its node.
func (k *keeper) checkOrigin(ctx context.Context, s *podsnapshotv1.PodSnapshot) (time.Duration, error) {
	name := s.Annotations[podsnapshotv1.AnnotationOriginNode]
	if rules.Replicated(s) || rules.Lost(s) || name == "" {
		return 0, nil
	}
	pause := watchPause
	if rules.NodeLocal(s) {
		pause = localPause
	}
	switch gone, err := k.objects.NodeGone(ctx, name); {
	case err != nil:
		return 0, err
	case !gone:
		return wait.Jitter(pause, 0.2), nil
	}
	before := s.DeepCopy()
	rules.SetProgress(s, rules.Progress{Failed: fmt.Sprintf(notice.OnlyCopyLost, name)})
	err := k.objects.Status().Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return control.ConflictPause, nil
	}
	return 0, client.IgnoreNotFound(err)
}
