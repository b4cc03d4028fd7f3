package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Identity returns the id that distinguishes this cluster's snapshots from those of other clusters in one store. It
// is the UID of the namespace kube-system, which exists as long as the cluster does.
func (o *Objects) Identity(ctx context.Context) (string, error) {
	if uid := o.identity.Load(); uid != nil {
		return *uid, nil
	}
	ns := new(corev1.Namespace)
	if err := o.Live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("identity of the cluster: read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	uid := string(ns.UID)
	o.identity.Store(&uid)
	return uid, nil
}

// IdentityOrNone is Identity for a checkpoint, which does not wait for the API server. A snapshot without an identity
// is merely never swept.
func (o *Objects) IdentityOrNone(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, FreshTime)
	defer cancel()
	uid, err := o.Identity(ctx)
	if err != nil {
		o.log.Warn("the snapshot will not say of which cluster it is", "error", err)
	}
	return uid
}
