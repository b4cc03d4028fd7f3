package rules

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/netadmin"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Plan is what a pod's snapshot carries, where it is stored, and whether the pod is stopped.
type Plan struct {
	Policy         string // its name, or podsnapshotv1.NoPolicy
	StorageConfig  string // its name; empty: the agent's own store
	Store          string // location of the store; empty: the agent's own
	Scope          snapshot.Scope
	Group          map[string]string
	ServiceAccount string
	SpecHash       string
	Spec           string // the distilled spec; empty if it is too large to keep
	Stop           bool   // the pod is stopped afterwards
	// Inheritable: if the pod is deleted while it sleeps, its successors may be restored from the snapshot of its sleep.
	Inheritable bool
	NetAdmin    netadmin.Case
}

// Find looks up a storage config by its name.
type Find func(name string) (*podsnapshotv1.PodSnapshotStorageConfig, bool)

// Checkpointable returns a refusal unless the pod's state allows a checkpoint.
func Checkpointable(pod *corev1.Pod) error {
	key := PodKey(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		return Refuse("pod %s is being deleted: checkpoint a pod before it is deleted", key)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return Refuse("pod %s is not running, it has ended (%s): checkpoint a pod that runs", key, pod.Status.Phase)
	case pod.Status.Phase != corev1.PodRunning:
		return Refuse("pod %s is not running yet (%s): wait until it is", key, pod.Status.Phase)
	}
	return nil
}

// Prepare returns the plan for a pod's checkpoint under the policy that selects the pod, or a refusal.
func Prepare(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy, find Find) (*Plan, error) {
	if err := Checkpointable(pod); err != nil {
		return nil, err
	}
	policy, err := Only(pod, policies)
	if err != nil {
		return nil, err
	}
	if policy == nil {
		return nil, Refuse("no PodSnapshotPolicy of namespace %s selects pod %s: create one whose selector matches the "+
			"pod's labels", pod.Namespace, PodKey(pod))
	}
	return prepareWhole(pod, policy, find)
}

// PrepareWorkload is Prepare for a save that the pod's own workload has started. The policy that selects the pod must
// have the workload for its trigger. The pod may not be Running yet for the API server, if its containers are.
func PrepareWorkload(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy, find Find) (*Plan, error) {
	policy, err := Only(pod, policies)
	switch {
	case err != nil:
		return nil, err
	case policy == nil:
		return nil, Refuse("pod %s may not save itself, no PodSnapshotPolicy of namespace %s selects it: create one with "+
			"triggerConfig.type workload whose selector matches the pod's labels", PodKey(pod), pod.Namespace)
	case policy.Spec.TriggerConfig.Type != podsnapshotv1.TriggerWorkload:
		return nil, Refuse("pod %s may not save itself, the trigger of PodSnapshotPolicy %s is %s: set triggerConfig.type "+
			"to workload", PodKey(pod), policy.Name, policy.Spec.TriggerConfig.Type)
	}
	return prepareWhole(pod, policy, find)
}

// PrepareLocal is Prepare for a checkpoint by the node's operator, who needs no policy. It also describes a snapshot
// that a pod's own workload has made. The plan stops the pod only if its policy's trigger is the workload.
func PrepareLocal(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy, find Find) *Plan {
	if policy, err := Only(pod, policies); err == nil && policy != nil {
		if plan, err := prepare(pod, policy, find); err == nil {
			plan.Stop = plan.Stop && policy.Spec.TriggerConfig.Type == podsnapshotv1.TriggerWorkload
			return plan
		}
	}
	plan := describe(pod)
	plan.NetAdmin = NetAdmin(pod, policies)
	return plan
}

// prepareWhole is prepare for a checkpoint that a pod's containers may stand in the way of.
func prepareWhole(pod *corev1.Pod, policy *podsnapshotv1.PodSnapshotPolicy, find Find) (*Plan, error) {
	if err := debugged(pod); err != nil {
		return nil, err
	}
	plan, err := prepare(pod, policy, find)
	if err != nil || plan.Scope == snapshot.RootfsOnly {
		return plan, err
	}
	if err := plan.NetAdmin.Checkpoint(PodKey(pod)); err != nil {
		return nil, Refuse("%v", err)
	}
	return plan, nil
}

// describe returns the plan of a checkpoint without a policy.
func describe(pod *corev1.Pod) *Plan {
	spec := podspec.Distil(pod)
	plan := &Plan{Policy: podsnapshotv1.NoPolicy, ServiceAccount: ServiceAccount(pod), SpecHash: spec.Hash()}
	if b := spec.Encode(); len(b) <= podspec.MaxEncoded {
		plan.Spec = string(b)
	}
	return plan
}

// debugged returns a refusal if a pod has ephemeral containers that run: a pod that is restored waits until all
// containers of its snapshot are there.
func debugged(pod *corev1.Pod) error {
	names := podspec.Debugging(pod)
	if len(names) == 0 {
		return nil
	}
	return Refuse("pod %s has debug containers that run (%s), and a pod restored from its snapshot would wait for them "+
		"forever: end what runs in them, and try again", PodKey(pod), strings.Join(names, ", "))
}

func prepare(pod *corev1.Pod, policy *podsnapshotv1.PodSnapshotPolicy, find Find) (*Plan, error) {
	group, missing := Group(policy, pod.Labels)
	if len(missing) > 0 {
		return nil, Refuse("pod %s lacks the label %s, by which PodSnapshotPolicy %s makes groups: give the pod that label",
			PodKey(pod), strings.Join(missing, ", "), policy.Name)
	}
	store, err := StoreOf(policy, find)
	if err != nil {
		return nil, err
	}
	plan := describe(pod)
	plan.Policy, plan.StorageConfig, plan.Store, plan.Group = policy.Name, policy.Spec.StorageConfigName, store, group
	plan.Stop = policy.Spec.TriggerConfig.PostCheckpoint == podsnapshotv1.PostCheckpointStop
	plan.Inheritable = savesOnTermination(policy) && debugged(pod) == nil
	plan.NetAdmin = NetAdmin(pod, []podsnapshotv1.PodSnapshotPolicy{*policy})
	if policy.Spec.SnapshotScope == podsnapshotv1.ScopeRootfsOnly {
		plan.Scope = snapshot.RootfsOnly
	}
	return plan, nil
}

// StoreOf returns the location of a policy's store, or a refusal.
func StoreOf(policy *podsnapshotv1.PodSnapshotPolicy, find Find) (string, error) {
	name := policy.Spec.StorageConfigName
	if name == "" {
		return "", Refuse("PodSnapshotPolicy %s names no storage config: set spec.storageConfigName", policy.Name)
	}
	config, ok := find(name)
	if !ok {
		return "", Refuse("PodSnapshotPolicy %s names the PodSnapshotStorageConfig %s, which does not exist: create it, "+
			"or name another", policy.Name, name)
	}
	return Location(config)
}
