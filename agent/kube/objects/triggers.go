package objects

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// targetIndex indexes triggers by their pod, as TargetOf writes it.
const targetIndex = "pod"

// TargetOf returns the pod of a trigger, as "namespace/name".
func TargetOf(t *podsnapshotv1.PodSnapshotManualTrigger) string {
	return t.Namespace + "/" + t.Spec.TargetPod
}

func (o *Objects) indexTriggers(ctx context.Context) error {
	err := o.mgr.GetFieldIndexer().IndexField(ctx, &podsnapshotv1.PodSnapshotManualTrigger{}, targetIndex,
		func(t client.Object) []string { return []string{TargetOf(t.(*podsnapshotv1.PodSnapshotManualTrigger))} })
	if err != nil {
		return fmt.Errorf("index triggers: %w", err)
	}
	return nil
}

// Triggers returns the triggers of a pod, which is named as TargetOf does.
func (o *Objects) Triggers(ctx context.Context, namespace, pod string) ([]podsnapshotv1.PodSnapshotManualTrigger,
	error,
) {
	var all podsnapshotv1.PodSnapshotManualTriggerList
	err := o.List(ctx, &all, client.InNamespace(namespace), client.MatchingFields{targetIndex: pod})
	if err != nil {
		return nil, fmt.Errorf("read triggers of pod %s: %w", pod, err)
	}
	return all.Items, nil
}

// WriteTrigger changes a trigger's status in one update. It fails on a conflict, because somebody else may have
// answered the trigger.
func (o *Objects) WriteTrigger(ctx context.Context, t *podsnapshotv1.PodSnapshotManualTrigger,
	change func(*podsnapshotv1.PodSnapshotManualTrigger),
) error {
	before := t.DeepCopy()
	change(t)
	err := o.Status().Patch(ctx, t, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("status of trigger %s/%s: %w", t.Namespace, t.Name, err)
	}
	return nil
}
