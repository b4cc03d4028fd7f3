package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// How long an agent holds the Lease without renewing it, after how long it gives up renewing, and
// how often it tries.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = 3 * time.Second
)

// lead contends for the Lease until ctx is done, and does the cluster's duties while it is held. An
// agent that loses it goes on with its node's duties.
func (c *Cluster) lead(ctx context.Context) {
	select {
	case <-c.synced:
	case <-ctx.Done():
		return
	}
	leases, err := coordination.NewForConfigAndClient(c.mgr.GetConfig(), c.mgr.GetHTTPClient())
	if err != nil {
		c.log.Error("no part in the cluster's duties", "error", err)
		return
	}
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: c.cfg.Namespace, Name: c.cfg.LeaseName},
				Client:     leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: c.cfg.NodeName},
			},
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { c.elected() },
				OnStoppedLeading: func() { c.leading.Store(false) },
			},
		})
	}
}

// elected takes up the cluster's duties.
func (c *Cluster) elected() {
	c.leading.Store(true)
	select {
	case c.begun <- struct{}{}:
	default:
	}
}

// takeOver has everything looked at whenever this agent begins to do the cluster's duties, until ctx
// is done.
func (c *Cluster) takeOver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.begun:
		}
		c.log.Info("this agent does the cluster's duties")
		if err := c.lookAtAll(ctx); err != nil && ctx.Err() == nil {
			c.log.Error("objects not read", "error", err)
		}
	}
}
