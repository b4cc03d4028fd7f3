package objects

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leaseTime is how long a node may be silent before it counts as gone.
const leaseTime = time.Minute

// NodeSilent reports whether a node's kubelet has not renewed its Lease for too long, or has none. It compares times of
// the API server's, if it can: the kubelet's own clock may be wrong.
func (o *Objects) NodeSilent(ctx context.Context, node string) (bool, error) {
	lease := new(coordinationv1.Lease)
	err := o.Live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node}, lease)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the Lease of node %s: %w", node, err)
	}
	now, err := o.Clock.Now()
	if err != nil {
		return false, fmt.Errorf("whether node %s is silent: %w", node, err)
	}
	return now.Sub(renewed(lease)) > leaseTime, nil
}

// renewed returns when a Lease was last written, by the API server's clock. If the API server has not noted that, it
// returns what the Lease's holder says.
func renewed(l *coordinationv1.Lease) (at time.Time) {
	for _, m := range l.ManagedFields {
		if m.Time != nil && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	if at.IsZero() && l.Spec.RenewTime != nil {
		at = l.Spec.RenewTime.Time
	}
	return at
}

// NodeGone reports whether a node is no longer in the cluster.
func (o *Objects) NodeGone(ctx context.Context, node string) (bool, error) {
	err := o.Live.Get(ctx, client.ObjectKey{Name: node}, new(corev1.Node))
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read node %s: %w", node, err)
	}
	return err != nil, nil
}
