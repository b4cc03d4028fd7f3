package duty

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// policies look after PodSnapshotPolicies.
type policies struct {
	objects *objects.Objects
	log     *slog.Logger
}

// servePolicy says in a policy's status whether it can be used. It also deletes the surplus snapshots of the policy's
// groups.
func (p *policies) servePolicy(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	policy := new(podsnapshotv1.PodSnapshotPolicy)
	if err := p.objects.Get(ctx, name, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	policies, find, err := p.objects.Rules(ctx, policy.Namespace, p.objects.List)
	if err != nil {
		return reconcile.Result{}, err
	}
	ok, reason, message := rules.Verdict(policy, policies, find)
	if err := setReady(ctx, p.objects.Status(), policy, &policy.Status.Conditions, &policy.Status.ObservedGeneration, ok,
		reason, message); err != nil {
		return reconcile.Result{}, err
	}
	return p.removeSurplus(ctx, policy)
}

// setReady writes the condition Ready of a policy or a storage config.
func setReady(ctx context.Context, statuses client.SubResourceWriter, o client.Object,
	conditions *[]metav1.Condition, observed *int64, ok bool, reason, message string,
) error {
	before := o.DeepCopyObject().(client.Object)
	changed := rules.SetReady(conditions, o.GetGeneration(), ok, reason, message)
	if !changed && *observed == o.GetGeneration() {
		return nil
	}
	*observed = o.GetGeneration()
	if err := statuses.Patch(ctx, o, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("status of %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// How often a store is checked: while it answers, and while it does not. storeTime is how long it may take to answer.
const (
	storeEvery = 5 * time.Minute
	storeAgain = 15 * time.Second
	storeTime  = 20 * time.Second
)

// configs look after storage configs.
type configs struct {
	objects *objects.Objects
	stores  Stores
}

// serveConfig says in a storage config's status whether its store can be used.
func (c *configs) serveConfig(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	config := new(podsnapshotv1.PodSnapshotStorageConfig)
	if err := c.objects.Get(ctx, name, config); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ok, reason, message := c.judge(ctx, config)
	if err := setReady(ctx, c.objects.Status(), config, &config.Status.Conditions, &config.Status.ObservedGeneration, ok,
		reason, message); err != nil {
		return reconcile.Result{}, err
	}
	if meta.IsStatusConditionTrue(config.Status.Conditions, podsnapshotv1.ConditionReady) {
		return reconcile.Result{RequeueAfter: storeEvery}, nil
	}
	return reconcile.Result{RequeueAfter: storeAgain}, nil
}

// judge returns whether the store of a storage config can be used, and the reason and the message that say so.
func (c *configs) judge(ctx context.Context, config *podsnapshotv1.PodSnapshotStorageConfig) (ok bool, reason,
	message string,
) {
	location, err := rules.Location(config)
	if err != nil {
		return false, podsnapshotv1.ReasonInvalid, err.Error()
	}
	if !c.stores.Shared(location) {
		return true, podsnapshotv1.ReasonValid, notice.AgentsStore
	}
	if err := c.reach(ctx, location); err != nil {
		return false, podsnapshotv1.ReasonStoreUnavailable, err.Error()
	}
	return true, podsnapshotv1.ReasonValid, notice.StoreAnswers
}

// reach returns why a store cannot be used, or nil if it answers.
func (c *configs) reach(ctx context.Context, location string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if err := c.stores.ProbeStore(ctx, location); err != nil {
		return fmt.Errorf("store %s: %w", location, err)
	}
	return nil
}
