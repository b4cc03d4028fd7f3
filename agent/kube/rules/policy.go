package rules

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Selecting returns the policies that select a pod, sorted by name. Policies in other namespaces do not select the
// pod, nor do those with an invalid selector.
func Selecting(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy) []*podsnapshotv1.PodSnapshotPolicy {
	var out []*podsnapshotv1.PodSnapshotPolicy
	for i := range policies {
		p := &policies[i]
		s, err := metav1.LabelSelectorAsSelector(&p.Spec.Selector)
		if err == nil && p.Namespace == pod.Namespace && s.Matches(labels.Set(pod.Labels)) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *podsnapshotv1.PodSnapshotPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Names lists the names of policies, for people, in their order.
func Names(policies []*podsnapshotv1.PodSnapshotPolicy) string {
	var out []string
	for _, p := range policies {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Only returns the one policy that selects a pod, or nil if none does. If several do, it returns a refusal.
func Only(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy) (*podsnapshotv1.PodSnapshotPolicy, error) {
	selecting := Selecting(pod, policies)
	switch len(selecting) {
	case 0:
		return nil, nil
	case 1:
		return selecting[0], nil
	}
	return nil, Refuse("several PodSnapshotPolicies select pod %s: %s; change their selectors so that one does",
		PodKey(pod), Names(selecting))
}

// PodKey returns "namespace/name" of a pod.
func PodKey(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// GroupKeys returns the keys of a policy's grouping labels, sorted.
func GroupKeys(p *podsnapshotv1.PodSnapshotPolicy) []string {
	if p.Spec.SnapshotGroupingRules == nil {
		return nil
	}
	keys := slices.Clone(p.Spec.SnapshotGroupingRules.GroupByLabelValue.Labels)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Group returns the values of a policy's grouping labels among an object's labels, and the keys that are missing
// there.
func Group(p *podsnapshotv1.PodSnapshotPolicy, of map[string]string) (group map[string]string, missing []string) {
	for _, k := range GroupKeys(p) {
		v, ok := of[k]
		if !ok {
			missing = append(missing, k)
			continue
		}
		if group == nil {
			group = make(map[string]string)
		}
		group[k] = v
	}
	return group, missing
}

// ServiceAccount returns the name of a pod's service account.
func ServiceAccount(pod *corev1.Pod) string { return cmp.Or(pod.Spec.ServiceAccountName, "default") }

// MustRestore reports whether a pod that cannot be restored must be refused and not started cold. Policy may be nil.
func MustRestore(pod *corev1.Pod, policy *podsnapshotv1.PodSnapshotPolicy) bool {
	return podsnapshotv1.MustRestore(pod.Annotations) || policy != nil && podsnapshotv1.MustRestore(policy.Annotations)
}

// RestoresLost reports whether a policy has a pod that has run, and has lost its sandbox, restored from the newest
// snapshot of itself.
func RestoresLost(p *podsnapshotv1.PodSnapshotPolicy) bool {
	return p.Annotations[podsnapshotv1.AnnotationOnSandboxLoss] == podsnapshotv1.OnSandboxLossRestoreLatest
}

// checkOnSandboxLoss returns a refusal if a policy's annotation about lost sandboxes has a value that is not known.
func checkOnSandboxLoss(p *podsnapshotv1.PodSnapshotPolicy) error {
	v, ok := p.Annotations[podsnapshotv1.AnnotationOnSandboxLoss]
	if !ok || v == podsnapshotv1.OnSandboxLossRestoreLatest {
		return nil
	}
	return Refuse("annotation %s is %.80q, and no pod that has run is restored: its only value is %s, or remove it",
		podsnapshotv1.AnnotationOnSandboxLoss, v, podsnapshotv1.OnSandboxLossRestoreLatest)
}

// savesOnTermination reports whether a policy has its pods saved when they are deleted.
func savesOnTermination(p *podsnapshotv1.PodSnapshotPolicy) bool {
	return p.Annotations[podsnapshotv1.AnnotationOnTermination] == podsnapshotv1.OnTerminationCheckpoint
}

// checkOnTermination returns a refusal if a policy's annotation about termination has a value that is not known.
func checkOnTermination(p *podsnapshotv1.PodSnapshotPolicy) error {
	v, ok := p.Annotations[podsnapshotv1.AnnotationOnTermination]
	if !ok || v == podsnapshotv1.OnTerminationCheckpoint {
		return nil
	}
	return Refuse("annotation %s is %.80q, and no pod is saved when it ends: its only value is %q, or remove it",
		podsnapshotv1.AnnotationOnTermination, v, podsnapshotv1.OnTerminationCheckpoint)
}
