package request

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// removeTime is how long Remove waits until a snapshot's data is removed.
const removeTime = 15 * time.Second

// Remover has PodSnapshots of this node deleted. Its methods may be called concurrently.
type Remover struct {
	objects  *objects.Objects
	nodeName string
	log      *slog.Logger
}

// NewRemover returns what has the PodSnapshots of a node deleted.
func NewRemover(o *objects.Objects, nodeName string, log *slog.Logger) *Remover {
	return &Remover{objects: o, nodeName: nodeName, log: log}
}

// Remove implements snapshots.Cluster. It asks the controller to delete the PodSnapshot. The deletion then goes on even
// if this agent ends.
func (r *Remover) Remove(ctx context.Context, k snapshot.Key) (known bool, err error) {
	s := new(podsnapshotv1.PodSnapshot)
	if err := r.objects.Live.Get(ctx, objects.Named(k), s); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read PodSnapshot %s: %w: %w", k, errkind.ErrClusterAway, err)
	}
	if origin := s.Annotations[podsnapshotv1.AnnotationOriginNode]; origin != r.nodeName {
		return true, fmt.Errorf("remove snapshot %s: %w: it was made on node %s; remove it there, or by kubectl "+
			"--namespace=%s delete podsnapshot %s",
			k, errkind.ErrElsewhere, origin, k.Namespace, k.Name)
	}
	if err := r.ask(ctx, s); err != nil {
		return true, fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	return true, r.await(ctx, s)
}

// ask asks the controller to delete a PodSnapshot, unless somebody has deleted it.
func (r *Remover) ask(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	if s.DeletionTimestamp != nil {
		return nil
	}
	r.log.Info("the controller is asked to delete a snapshot", "snapshot", objects.KeyOf(s).String(), "reason",
		"it is removed on its node")
	// The UID keeps it from another PodSnapshot that has the name by now: a conflict says that this one is gone.
	patch := fmt.Sprintf(`{"metadata": {"uid": %q, "annotations": {%q: "true"}}}`, s.UID, podsnapshotv1.AnnotationRemove)
	err := r.objects.Patch(ctx, s.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	r.objects.Unsure(objects.KeyOf(s))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// await waits until a PodSnapshot no longer exists.
func (r *Remover) await(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	k, why := objects.KeyOf(s), "the controller has not deleted it yet"
	for {
		news := r.objects.News.Listen()
		now := new(podsnapshotv1.PodSnapshot)
		err := r.objects.Live.Get(ctx, objects.Named(k), now)
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != s.UID:
			return nil
		case err == nil && !rules.Ready(now) && rules.WhyNotReady(now) != "":
			why = rules.WhyNotReady(now)
		case err == nil && now.DeletionTimestamp != nil:
			why = "its data has not been removed yet"
		}
		select {
		case <-news:
		case <-time.After(objects.LookAgain):
		case <-ctx.Done():
			return fmt.Errorf("the deletion of PodSnapshot %s goes on: %s: %w", k, why, context.Cause(ctx))
		}
	}
}
