package duty

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/kube/sightings"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

const (
	// decideTime is how old a PodSnapshot is at least that is not confirmed for good. The news of its pod may be late.
	decideTime = 5 * time.Second
	// decidePause is how often its pod is looked for until then.
	decidePause = 200 * time.Millisecond
)

// confirmer confirms where PodSnapshots come from.
type confirmer struct {
	objects   *objects.Objects
	sightings *sightings.Sightings
	judge     *age.Judge
	log       *slog.Logger
}

// confirm decides whether a PodSnapshot is of a pod that was on the PodSnapshot's node, and writes that down. The node
// may have been taken over and have invented the pod. Other nodes restore only what is confirmed.
func (c *confirmer) confirm(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	s := new(podsnapshotv1.PodSnapshot)
	if err := c.objects.Get(ctx, name, s); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if rules.Decided(s) || s.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	why, err := c.contradiction(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if why != "" && c.judge.Younger(s.CreationTimestamp.Time, decideTime) > 0 {
		return reconcile.Result{RequeueAfter: decidePause}, nil
	}
	return control.RetryConflict(c.decide(ctx, s, why))
}

// contradiction returns why a PodSnapshot cannot be confirmed. It is empty if it can. It asks the API server only if
// what was seen of the pod does not do.
func (c *confirmer) contradiction(ctx context.Context, s *podsnapshotv1.PodSnapshot) (why string, err error) {
	name := client.ObjectKey{Namespace: s.Namespace, Name: s.Annotations[podsnapshotv1.AnnotationOriginPod]}
	why = fmt.Sprintf("the controller has not seen its pod %.300s", name)
	for _, look := range []func() ([]rules.Seen, error){
		func() ([]rules.Seen, error) {
			return c.sightings.Pods(ctx, name, s.Annotations[podsnapshotv1.AnnotationOriginPodUID])
		},
		func() ([]rules.Seen, error) { return c.sightings.Now(ctx, name) },
	} {
		pods, err := look()
		if err != nil {
			return "", err
		}
		for _, p := range pods {
			if why = p.Contradicts(s); why == "" {
				return "", nil
			}
		}
	}
	return why, nil
}

// decide writes down why a PodSnapshot is not confirmed or, if why is empty, that it is.
func (c *confirmer) decide(ctx context.Context, s *podsnapshotv1.PodSnapshot, why string) error {
	k := objects.KeyOf(s)
	answer := podsnapshotv1.Confirmed
	if why != "" {
		answer = why
		c.log.Warn("snapshot not confirmed", "snapshot", k.String(), "reason", why)
	}
	patch := client.MergeFromWithOptions(s.DeepCopy(), client.MergeFromWithOptimisticLock{})
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, podsnapshotv1.AnnotationConfirmed, answer)
	if err := c.objects.Patch(ctx, s, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("confirm PodSnapshot %s: %w", k, err)
	}
	return nil
}
