package slumber

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/kube/sleeppolicy"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// allowed returns a refusal unless a policy selects a pod that its annotation has put to sleep: who may annotate a pod
// does not decide alone that its memory is saved.
func allowed(ctx context.Context, o *objects.Objects, pod *corev1.Pod) error {
	for _, read := range []objects.List{o.List, o.Fresh} { // the cache may be behind
		policies, _, err := o.Rules(ctx, pod.Namespace, read)
		if err != nil {
			return err
		}
		var sleeps sleepv1alpha1.SleepPolicyList
		if err := read(ctx, &sleeps, client.InNamespace(pod.Namespace)); err != nil {
			return fmt.Errorf("read SleepPolicies of namespace %s: %w", pod.Namespace, err)
		}
		if len(rules.Selecting(pod, policies)) > 0 || sleeppolicy.Selected(pod, sleeps.Items) {
			return nil
		}
	}
	return rules.Refuse("no SleepPolicy and no PodSnapshotPolicy of namespace %s selects pod %s: create one whose "+
		"selector matches the pod's labels, or have the node's operator put the pod to sleep", pod.Namespace,
		rules.PodKey(pod))
}
