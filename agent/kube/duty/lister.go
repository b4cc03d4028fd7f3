package duty

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/objects"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// lister lists the objects that a change of another object concerns.
type lister struct {
	objects *objects.Objects
	log     *slog.Logger
}

// listed returns requests to reconcile the objects of a list that match.
func (l *lister) listed(ctx context.Context, list client.ObjectList, match func(client.Object) bool,
	in ...client.ListOption,
) (out []reconcile.Request) {
	if err := l.objects.List(ctx, list, in...); err != nil {
		l.log.Warn("objects not read", "error", err)
		return nil
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error { // only the function could fail
		if o := o.(client.Object); match(o) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return nil
	})
	return out
}

// snapshotsOf returns the PodSnapshots of a policy.
func (l *lister) snapshotsOf(ctx context.Context, policy client.Object) []reconcile.Request {
	return l.listed(ctx, &podsnapshotv1.PodSnapshotList{}, func(o client.Object) bool {
		return o.(*podsnapshotv1.PodSnapshot).Spec.PolicyName == policy.GetName()
	}, client.InNamespace(policy.GetNamespace()))
}

// policiesBeside returns all policies in a policy's namespace, including itself.
func (l *lister) policiesBeside(ctx context.Context, policy client.Object) []reconcile.Request {
	return l.listed(ctx, &podsnapshotv1.PodSnapshotPolicyList{}, func(client.Object) bool { return true },
		client.InNamespace(policy.GetNamespace()))
}

// policiesWith returns the policies that name a storage config.
func (l *lister) policiesWith(ctx context.Context, config client.Object) []reconcile.Request {
	return l.listed(ctx, &podsnapshotv1.PodSnapshotPolicyList{}, func(o client.Object) bool {
		return o.(*podsnapshotv1.PodSnapshotPolicy).Spec.StorageConfigName == config.GetName()
	})
}

// policyName returns a request to reconcile a PodSnapshot's policy.
func policyName(_ context.Context, o client.Object) []reconcile.Request {
	s := o.(*podsnapshotv1.PodSnapshot)
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.PolicyName}}}
}

// sleepPoliciesBeside returns all SleepPolicies in a SleepPolicy's namespace, including itself.
func (l *lister) sleepPoliciesBeside(ctx context.Context, policy client.Object) []reconcile.Request {
	return l.listed(ctx, &sleepv1alpha1.SleepPolicyList{}, func(client.Object) bool { return true },
		client.InNamespace(policy.GetNamespace()))
}

// podEvents requeues the PodSnapshots of a pod that is gone.
func (l *lister) podEvents() handler.Funcs {
	return handler.Funcs{DeleteFunc: func(ctx context.Context, e event.DeleteEvent,
		q workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		all := l.listed(ctx, &podsnapshotv1.PodSnapshotList{}, func(client.Object) bool { return true },
			client.InNamespace(e.Object.GetNamespace()), client.MatchingFields{originPod: string(e.Object.GetUID())})
		for _, r := range all {
			q.Add(r)
		}
	}}
}

// originPod is the index of PodSnapshots by the UID of the pod that was checkpointed.
const originPod = "originPodUID"

func originPodOf(o client.Object) []string {
	if uid := o.GetAnnotations()[podsnapshotv1.AnnotationOriginPodUID]; uid != "" {
		return []string{uid}
	}
	return nil
}
