package rules

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Overlapping returns the other policies of a policy's namespace that could select the same pod.
func Overlapping(policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshotPolicy,
) []*podsnapshotv1.PodSnapshotPolicy {
	var out []*podsnapshotv1.PodSnapshotPolicy
	for i := range all {
		p := &all[i]
		if p.Namespace == policy.Namespace && p.Name != policy.Name && Overlap(&policy.Spec.Selector, &p.Spec.Selector) {
			out = append(out, p)
		}
	}
	return out
}

// Overlap reports whether any set of labels matches both selectors.
func Overlap(a, b *metav1.LabelSelector) bool {
	byKey := make(map[string][]labels.Requirement)
	for _, s := range []*metav1.LabelSelector{a, b} {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			return false
		}
		requirements, selectable := selector.Requirements()
		if !selectable {
			return false
		}
		for _, r := range requirements {
			byKey[r.Key()] = append(byKey[r.Key()], r)
		}
	}
	for _, requirements := range byKey {
		if !satisfiable(requirements) {
			return false
		}
	}
	return true
}

// satisfiable reports whether any value of a label, or its absence, meets all requirements for the label.
func satisfiable(requirements []labels.Requirement) bool {
	key := requirements[0].Key()
	candidates := []labels.Set{{}} // without the label, with a value that no requirement names, and with each named value
	other := "x"
	for _, r := range requirements {
		for v := range r.Values() {
			candidates = append(candidates, labels.Set{key: v})
			other += v
		}
		if r.Operator() == selection.GreaterThan || r.Operator() == selection.LessThan {
			return true // trying values does not decide this, and policies cannot use these operators
		}
	}
	candidates = append(candidates, labels.Set{key: other})
	return slices.ContainsFunc(candidates, func(c labels.Set) bool {
		return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(c) })
	})
}
