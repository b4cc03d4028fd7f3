package objects

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/api/snapshot"
)

// RefOf identifies a pod.
func RefOf(pod *corev1.Pod) snapshot.PodRef {
	return snapshot.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

// PodHere returns a pod of this node, or nil if there is none.
func (o *Objects) PodHere(ctx context.Context, name client.ObjectKey) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	if err := o.Get(ctx, name, pod); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	return pod, nil
}

// PodUIDs returns the UIDs of the pods of this node. It does not wait until that is known.
func (o *Objects) PodUIDs(ctx context.Context) (map[string]bool, error) {
	select {
	case <-o.Synced:
	default:
		return nil, errNotHeard
	}
	var pods corev1.PodList
	if err := o.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("read the pods of this node: %w", err)
	}
	uids := make(map[string]bool)
	for i := range pods.Items {
		uids[string(pods.Items[i].UID)] = true
	}
	return uids, nil
}

// errNotHeard means that the caches are not filled yet.
var errNotHeard = errors.New("the agent has not heard from the API server yet")

// PodNow returns the pod with a cached pod's name from the API server or, if that does not answer, the cached pod. If
// no such pod is on this node any more, it returns nil.
func (o *Objects) PodNow(ctx context.Context, cached *corev1.Pod) *corev1.Pod {
	ctx, cancel := context.WithTimeout(ctx, FreshTime)
	defer cancel()
	pod := new(corev1.Pod)
	err := o.Live.Get(ctx, client.ObjectKeyFromObject(cached), pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return cached
	case pod.Spec.NodeName != o.nodeName:
		return nil
	}
	return pod
}

// Ending returns the pod with a cached pod's name from the API server. It asks until ctx is done, or until the cache
// says that the pod is being deleted. It returns nil if there is no such pod.
func (o *Objects) Ending(ctx context.Context, cached *corev1.Pod) (*corev1.Pod, error) {
	name, pod := client.ObjectKeyFromObject(cached), new(corev1.Pod)
	err := Patiently(ctx, func(soon context.Context) error {
		err := o.Live.Get(soon, name, pod)
		if err == nil || apierrors.IsNotFound(err) {
			return err
		}
		here := new(corev1.Pod)
		if o.Get(ctx, name, here) == nil && here.DeletionTimestamp != nil {
			pod, err = here, nil
		}
		return err
	})
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pod, nil
}

// PodOf returns a pod whose sandbox is on this node. It returns nil if the API server does not know the pod, which is
// then not the cluster's concern. The pod may be too new for the cache.
func (o *Objects) PodOf(ctx context.Context, ref snapshot.PodRef) (*corev1.Pod, error) {
	select {
	case <-o.Synced:
	case <-ctx.Done():
		return nil, fmt.Errorf("pod %s: %w: %w", ref, errNotHeard, context.Cause(ctx))
	}
	name := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	pod := new(corev1.Pod)
	for _, from := range []client.Reader{o.Client, o.Live} {
		err := from.Get(ctx, name, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read pod %s: %w", ref, err)
		}
		if err == nil && (ref.UID == "" || string(pod.UID) == ref.UID) {
			return pod, nil
		}
	}
	return nil, nil
}
