package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
)

// leaseTimes are the times of the Lease: how long it is held without being renewed, how long the holder keeps trying
// to renew it, and how often an agent tries.
type leaseTimes struct{ hold, renew, retry time.Duration }

// timesFor returns the times for a number of agents. Each tries to get the Lease at random intervals of 1 to 2.2
// times retry. Together they must not keep the API server busy.
func timesFor(agents int64) leaseTimes {
	const (
		least, most = 3 * time.Second, 15 * time.Second
		perAgent    = 10 * time.Millisecond // at most some 60 tries a second, up to 1500 agents
	)
	retry := time.Duration(min(max(agents, int64(least/perAgent)), int64(most/perAgent))) * perAgent
	return leaseTimes{hold: retry * 10 / 3, renew: retry * 7 / 3, retry: retry}
}

// agents returns roughly how many agents there are: the number of pods in their namespace.
func (c *Cluster) agents(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, objects.FreshTime)
	defer cancel()
	var pods corev1.PodList
	if err := c.objects.Live.List(ctx, &pods, client.InNamespace(c.cfg.Namespace), client.Limit(1)); err != nil {
		return 0, fmt.Errorf("count pods of namespace %s: %w", c.cfg.Namespace, err)
	}
	n := int64(len(pods.Items))
	if left := pods.RemainingItemCount; left != nil {
		n += *left
	}
	return n, nil
}

// lead competes for the Lease until ctx is done, and does the cluster's duties while it holds the Lease. An agent
// that loses the Lease goes on with its node's duties.
func (c *Cluster) lead(ctx context.Context) {
	select {
	case <-c.objects.Synced:
	case <-ctx.Done():
		return
	}
	leases, err := coordination.NewForConfigAndClient(c.mgr.GetConfig(), c.mgr.GetHTTPClient())
	if err != nil {
		c.log.Error("no part in the cluster's duties", "error", err)
		return
	}
	agents, err := c.agents(ctx)
	if err != nil && ctx.Err() == nil {
		c.log.Warn("agents not counted; they are taken for few", "error", err)
	}
	times := timesFor(agents)
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: c.cfg.Namespace, Name: c.cfg.LeaseName},
				Client:     leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: c.cfg.NodeName},
			},
			LeaseDuration: times.hold, RenewDeadline: times.renew, RetryPeriod: times.retry, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { c.duties.Begin() },
				OnStoppedLeading: func() { c.duties.End() },
			},
		})
	}
}
