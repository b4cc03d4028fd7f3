package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// asked is an object that asks for a checkpoint. Its methods write to the API server. None of them replaces an answer
// that exists already.
type asked interface {
	requester() requester
	asker() asker
	podName() string
	// taken returns the UID of the pod for which this agent has taken the request, or "" if it has not.
	taken() (podUID string)
	take(ctx context.Context, pod *corev1.Pod) error
	complete(ctx context.Context, k snapshot.Key) error
	fail(ctx context.Context, why string) error
}

// serve does the next step of a request for a checkpoint of a pod. Pod is nil if it is not on this node, or no
// longer.
func (c *Cluster) serve(ctx context.Context, a asked, pod *corev1.Pod) error {
	if uid := a.taken(); pod != nil && uid != "" && string(pod.UID) != uid {
		pod = nil // another pod has its name
	}
	if o, ok := c.orders.of(a.asker()); ok && o.answered {
		return nil
	}
	k, err := c.beganFor(ctx, a)
	if err != nil {
		return err
	}
	switch out, why := c.outcome(ctx, a.asker(), k); out {
	case failed:
		return c.refuse(ctx, a, pod, why)
	case runsOn, safe:
		ready, lost, err := c.published(ctx, k)
		switch {
		case err != nil:
			return err
		case lost != "":
			return c.refuse(ctx, a, pod, lost)
		case !ready:
			return nil // published requeues the request
		case out == runsOn:
			return c.refuse(ctx, a, pod, fmt.Sprintf("PodSnapshot %s was made, but the pod was not stopped and runs on: %s", k,
				why))
		}
		return c.answer(a, a.complete(ctx, k))
	case underWay:
		return nil
	}
	return c.takeUp(ctx, a, pod)
}

// published returns whether the PodSnapshot of a successful checkpoint is Ready or, in lost, why it never will be. In
// all other cases it requeues the PodSnapshot, which later requeues the object that asked.
func (c *Cluster) published(ctx context.Context, k snapshot.Key) (ready bool, lost string, err error) {
	s, err := c.podSnapshot(ctx, k)
	switch {
	case err != nil:
	case s != nil && rules.Lost(s):
		return false, rules.WhyNotReady(s), nil
	case s != nil && rules.Ready(s):
		return true, "", nil
	case s == nil:
		q, known := c.requests.get(k)
		if !known {
			break
		}
		there, err := c.stored(ctx, q)
		if err == nil && !there {
			return false, fmt.Sprintf("snapshot %s was removed before it became a PodSnapshot", k), nil
		}
	}
	c.snapshots.kick(named(k))
	return false, "", err
}

// beganFor returns the key of the snapshot that was begun for a request, or a zero key if none was. If this node took
// the request and has forgotten the snapshot, the PodSnapshot may still show it.
func (c *Cluster) beganFor(ctx context.Context, a asked) (snapshot.Key, error) {
	k := c.keyOf(a.asker())
	if k.Name != "" || a.taken() == "" {
		return k, nil
	}
	var all podsnapshotv1.PodSnapshotList
	if err := c.client.List(ctx, &all, client.InNamespace(a.asker().namespace), client.UnsafeDisableDeepCopy); err != nil {
		return k, fmt.Errorf("read PodSnapshots of namespace %s: %w", a.asker().namespace, err)
	}
	for i := range all.Items {
		if k := keyOf(&all.Items[i]); a.asker().made(k) {
			return k, nil
		}
	}
	return k, nil
}

// takeUp begins a request of which nothing is known yet, if it is the request's turn.
func (c *Cluster) takeUp(ctx context.Context, a asked, pod *corev1.Pod) error {
	switch {
	case pod == nil && a.taken() != "":
		return c.refuse(ctx, a, nil, fmt.Sprintf("pod %s/%s was gone before it was checkpointed", a.asker().namespace,
			a.podName()))
	case pod == nil:
		return nil // it is on another node
	case c.orders.busy(string(pod.UID)):
		return nil // nextTurn requeues the request
	}
	if a.taken() == "" {
		if pod = c.now(ctx, pod); pod == nil {
			return nil // it is requeued when the cache learns of the change
		}
	}
	plan, err := c.prepare(ctx, pod)
	if rules.Refused(err) {
		return c.refuse(ctx, a, pod, err.Error())
	}
	if err != nil {
		return err
	}
	if a.taken() == "" {
		if err := a.take(ctx, pod); err != nil {
			return err
		}
	}
	c.begin(&order{asker: a.asker(), pod: refOf(pod), plan: plan, requester: a.requester()})
	return nil
}

// refuse answers with the reason why the request has failed, and makes an event on the pod.
func (c *Cluster) refuse(ctx context.Context, a asked, pod *corev1.Pod, why string) error {
	err := a.fail(ctx, why)
	if err == nil && pod != nil {
		c.event(refOf(pod), a.asker().about(), corev1.EventTypeWarning, actionCheckpoint,
			fmt.Sprintf("Failed to checkpoint the pod: %s", why))
	}
	return c.answer(a, err)
}

// answer records that a request was answered. If its object is gone by then, that is as good.
func (c *Cluster) answer(a asked, err error) error {
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	c.orders.answered(a.asker())
	return nil
}

// close ends a request whose answer was seen.
func (c *Cluster) close(a asked) error {
	k := c.keyOf(a.asker())
	if !c.orders.close(a.asker()) {
		return nil
	}
	if e, ok := c.ledger.get(k); ok && (e.Deleted || e.Published == "") {
		return c.ledger.drop(k)
	}
	return nil
}

// prepare returns the plan for a pod's checkpoint, or a refusal.
func (c *Cluster) prepare(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	policies, find, err := c.rulesOf(ctx, pod.Namespace, c.client.List)
	if err != nil {
		return nil, err
	}
	plan, err := rules.Prepare(pod, policies, find)
	if !rules.Refused(err) {
		return plan, err
	}
	if policies, find, err = c.rulesOf(ctx, pod.Namespace, c.fresh); err != nil { // the cache may be behind
		return nil, err
	}
	return rules.Prepare(pod, policies, find)
}

// list reads objects.
type list func(context.Context, client.ObjectList, ...client.ListOption) error

// rulesOf returns a namespace's policies, and a function that finds the storage configs that they name.
func (c *Cluster) rulesOf(ctx context.Context, namespace string,
	read list,
) ([]podsnapshotv1.PodSnapshotPolicy, rules.Find, error) {
	var policies podsnapshotv1.PodSnapshotPolicyList
	if err := read(ctx, &policies, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("read policies of namespace %s: %w", namespace, err)
	}
	var configs podsnapshotv1.PodSnapshotStorageConfigList
	if err := read(ctx, &configs); err != nil {
		return nil, nil, fmt.Errorf("read storage configs: %w", err)
	}
	return policies.Items, func(name string) (*podsnapshotv1.PodSnapshotStorageConfig, bool) {
		for i := range configs.Items {
			if configs.Items[i].Name == name {
				return &configs.Items[i], true
			}
		}
		return nil, false
	}, nil
}

// onNode returns a pod of this node, or nil if there is none.
func (c *Cluster) onNode(ctx context.Context, name client.ObjectKey) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	if err := c.client.Get(ctx, name, pod); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	return pod, nil
}

func refOf(pod *corev1.Pod) snapshot.PodRef {
	return snapshot.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}
