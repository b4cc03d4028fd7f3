package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// identify returns the id that distinguishes this cluster's snapshots from those of other clusters in one store. It
// is the UID of the namespace kube-system, which exists as long as the cluster does.
func (c *Cluster) identify(ctx context.Context) (string, error) {
	if uid := c.identity.Load(); uid != nil {
		return *uid, nil
	}
	ns := new(corev1.Namespace)
	if err := c.live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("identity of the cluster: read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	uid := string(ns.UID)
	c.identity.Store(&uid)
	return uid, nil
}

// identityOrNone is identify for a checkpoint, which does not wait for the API server. A snapshot without an identity
// is merely never swept.
func (c *Cluster) identityOrNone(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	uid, err := c.identify(ctx)
	if err != nil {
		c.log.Warn("the snapshot will not say of which cluster it is", "error", err)
	}
	return uid
}
