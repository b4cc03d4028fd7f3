// Package uninstall says what would be lost if Diapause were removed from a cluster now.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// page is how many objects one answer of the API server holds.
const page = 500

// most is how many objects an error names.
const most = 20

// agent is the name by which the pods of agents are labelled.
const agent = "diapause-agent"

// Check returns an error that names the pods that sleep, and the PodSnapshots whose data is still to be deleted. Nobody
// could wake or delete these without agents. If there are no agents any more, such a deletion is not waited for.
func Check(ctx context.Context, c client.Client) error {
	pods, agents, err := sleepers(ctx, c)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var snapshots []string
	if agents {
		if snapshots, err = deleting(ctx, c); err != nil {
			return fmt.Errorf("list PodSnapshots: %w", err)
		}
	}
	return errors.Join(
		refusal(pods, "pods sleep, and without Diapause they never wake: wake or delete them first"),
		refusal(snapshots, "PodSnapshots are being deleted, and without Diapause that never ends: wait for it"))
}

// refusal is an error that names objects, or nil if there are none.
func refusal(names []string, why string) error {
	if len(names) == 0 {
		return nil
	}
	n := len(names)
	slices.Sort(names)
	if n > most {
		names = append(names[:most], "...")
	}
	return fmt.Errorf("%d %s: %s", n, why, strings.Join(names, ", "))
}

// sleepers returns the names of all pods that sleep, and whether there are agents.
func sleepers(ctx context.Context, c client.Client) (names []string, agents bool, err error) {
	var l corev1.PodList
	for more := true; more; more = l.Continue != "" {
		if err := c.List(ctx, &l, client.Limit(page), client.Continue(l.Continue)); err != nil {
			return nil, false, err
		}
		for i := range l.Items {
			p := &l.Items[i]
			agents = agents || p.Labels["app.kubernetes.io/name"] == agent
			if asleep(p) {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
	}
	return names, agents, nil
}

func asleep(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == podsnapshotv1.ConditionAsleep && c.Status == corev1.ConditionTrue
	})
}

// deleting returns the names of all PodSnapshots that have been deleted and whose data is still there. Without the
// definition there are none.
func deleting(ctx context.Context, c client.Client) (names []string, err error) {
	var l podsnapshotv1.PodSnapshotList
	for more := true; more; more = l.Continue != "" {
		err := c.List(ctx, &l, client.Limit(page), client.Continue(l.Continue))
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range l.Items {
			s := &l.Items[i]
			if s.DeletionTimestamp != nil && slices.Contains(s.Finalizers, podsnapshotv1.Finalizer) {
				names = append(names, s.Namespace+"/"+s.Name)
			}
		}
	}
	return names, nil
}
