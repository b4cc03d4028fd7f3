package duty

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// removeSurplus deletes the surplus snapshots of a policy's groups. If a node is silent on which one that is to be kept
// lies, it looks again later.
func (p *policies) removeSurplus(ctx context.Context, policy *podsnapshotv1.PodSnapshotPolicy) (r reconcile.Result,
	err error,
) {
	var all podsnapshotv1.PodSnapshotList
	if err := p.objects.List(ctx, &all, client.InNamespace(policy.Namespace)); err != nil {
		return r, fmt.Errorf("read PodSnapshots of namespace %s: %w", policy.Namespace, err)
	}
	asked := make(map[string]bool)
	lives := func(node string) bool {
		if _, known := asked[node]; known {
			return asked[node]
		}
		silent, askErr := p.objects.NodeSilent(ctx, node)
		err = errors.Join(err, askErr)
		if silent {
			r.RequeueAfter = wait.Jitter(watchPause, 0.2)
		}
		asked[node] = askErr == nil && !silent
		return asked[node]
	}
	for _, s := range rules.Surplus(policy, all.Items, lives) {
		if err := discard(ctx, p.objects, p.log, s, "its group has newer ones"); err != nil {
			return r, err
		}
	}
	return r, err
}
