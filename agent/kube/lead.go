package kube

import (
	"cmp"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultLeaseName is the name of the controller's Lease. Earlier agents competed for it, and its age says since when
// Diapause is installed, so it keeps their name.
const defaultLeaseName = "diapause-agent"

// leaseKey returns the key of the controller's Lease.
func leaseKey(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: cmp.Or(name, defaultLeaseName)}
}

// The times of the Lease: how long it is held without being renewed, how long its holder keeps trying to renew it, and
// how often a controller tries.
const (
	leaseHold  = 10 * time.Second
	leaseRenew = 7 * time.Second
	leaseRetry = 3 * time.Second
)

// compete competes for the Lease until ctx is done, and does the duties while it holds the Lease. Then it gives the
// Lease back.
func (c *Controller) compete(ctx context.Context) {
	select {
	case <-c.objects.Synced:
	case <-ctx.Done():
		return
	}
	leases, err := coordination.NewForConfigAndClient(c.mgr.GetConfig(), c.mgr.GetHTTPClient())
	if err != nil {
		c.log.Error("no part in the cluster-wide tasks", "error", err)
		return
	}
	defer context.AfterFunc(ctx, c.lead.End)()
	lease := leaseKey(c.cfg.Namespace, c.cfg.LeaseName)
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
				Client:     leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: c.cfg.Name},
			},
			LeaseDuration: leaseHold, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					c.lead.Begin()
					c.keeper.Begin()
				},
				OnStoppedLeading: c.lead.End,
			},
		})
	}
}
