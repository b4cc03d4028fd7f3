package sleeppolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/ready"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// Start implements manager.Runnable: it tells the agent that it knows of all pods whether they are to be ready when
// they sleep. The caches are filled by then. If they cannot be read, pods are made ready as if no policy said
// otherwise, until they are served.
func (p *Policies) Start(ctx context.Context) error {
	if err := p.wishAll(ctx); err != nil {
		p.Logger.Warn("it is not known of all pods whether they are to be ready when they sleep", "error", err)
	}
	p.Ready.WishesKnown()
	return nil
}

// wishAll tells the agent of each pod of this node whether it is to be ready when it sleeps.
func (p *Policies) wishAll(ctx context.Context) error {
	var pods corev1.PodList
	if err := p.Objects.List(ctx, &pods); err != nil {
		return fmt.Errorf("read the pods of this node: %w", err)
	}
	var all sleepv1alpha1.SleepPolicyList
	if err := p.Objects.List(ctx, &all); err != nil {
		return fmt.Errorf("read SleepPolicies: %w", err)
	}
	in := make(map[string][]sleepv1alpha1.SleepPolicy) // by namespace
	for _, s := range all.Items {
		in[s.Namespace] = append(in[s.Namespace], s)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		policies, _ := selecting(pod, in[pod.Namespace])
		p.wish(client.ObjectKeyFromObject(pod), string(pod.UID), policies)
	}
	return nil
}

// wish tells the agent whether a pod is to be ready when it sleeps. Without policies, or with the UID of another pod
// that had the name, what it was told before no longer holds.
func (p *Policies) wish(key types.NamespacedName, uid string, policies []*sleepv1alpha1.SleepPolicy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := wishOf(policies)
	if old := p.wished[key]; old != "" && (old != uid || w == ready.Auto) {
		p.Ready.Wish(old, ready.Auto)
		delete(p.wished, key)
	}
	if w != ready.Auto {
		p.Ready.Wish(uid, w)
		p.wished[key] = uid
	}
}

// wishOf returns what policies wish that select a pod. Several make sure only of what none of them wants.
func wishOf(policies []*sleepv1alpha1.SleepPolicy) ready.Wish {
	w := ready.Auto
	for _, s := range policies {
		switch {
		case s.Spec.Ready == sleepv1alpha1.ReadyNever:
			return ready.Never
		case s.Spec.Ready == sleepv1alpha1.ReadyAlways && len(policies) == 1:
			w = ready.Always
		}
	}
	return w
}
