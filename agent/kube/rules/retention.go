package rules

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Surplus returns the snapshots in excess of what a policy's groups keep: in each group those that are older than its
// newest ones. The oldest come first, in the reverse of the order in which new pods get them.
//
// A newer snapshot counts as kept only if it is kept somewhere that outlives the place of the one that is to go: in a
// shared store, or, for one that is in no shared store itself, in the store of a node that lives. Otherwise a group
// whose store is slow, or denies access, would be left with what one node's spool has. So a group may have more
// snapshots than its policy says.
//
// Those that are not confirmed do not count either: otherwise a node that was taken over could have those of others
// deleted. They go with those that are older than what is kept.
func Surplus(policy *podsnapshotv1.PodSnapshotPolicy, all []podsnapshotv1.PodSnapshot, lives func(node string) bool,
) []*podsnapshotv1.PodSnapshot {
	rules := policy.Spec.SnapshotGroupingRules
	if rules == nil || rules.GroupByLabelValue.GroupRetentionPolicy == nil {
		return nil
	}
	most := int(rules.GroupByLabelValue.GroupRetentionPolicy.MaxSnapshotCountPerGroup)
	if most <= 0 {
		return nil
	}
	groups := make(map[string][]*podsnapshotv1.PodSnapshot)
	for i := range all {
		s := &all[i]
		group, missing := Group(policy, s.Labels)
		if s.Namespace == policy.Namespace && s.Spec.PolicyName == policy.Name && Captured(s) && Decided(s) &&
			len(missing) == 0 && !OfSleep(s) {
			key := metav1.FormatLabelSelector(metav1.SetAsLabelSelector(group))
			groups[key] = append(groups[key], s)
		}
	}
	var out []*podsnapshotv1.PodSnapshot
	for _, g := range groups {
		slices.SortFunc(g, Newest)
		out = append(out, beyond(g, most, lives)...)
	}
	slices.SortFunc(out, func(a, b *podsnapshotv1.PodSnapshot) int { return Newest(b, a) })
	return out
}

// beyond returns the snapshots that are older than the given number of snapshots that outlive them. The newest come
// first. It asks whether a node lives only if that decides.
func beyond(group []*podsnapshotv1.PodSnapshot, most int, lives func(node string) bool,
) (out []*podsnapshotv1.PodSnapshot) {
	shared, local := 0, 0 // newer ones that count: in a shared store, in the store of a node that lives
	var nodes []string    // of others in a node's store
	for _, s := range group {
		kept := shared
		if !Replicated(s) {
			if shared+local < most && shared+local+len(nodes) >= most {
				for _, n := range nodes {
					if lives(n) {
						local++
					}
				}
				nodes = nil
			}
			kept += local
		}
		if kept >= most {
			out = append(out, s)
		}
		switch {
		case !Confirmed(s):
		case Replicated(s):
			shared++
		case NodeLocal(s):
			nodes = append(nodes, s.Annotations[podsnapshotv1.AnnotationOriginNode])
		}
	}
	return out
}

const (
	// failedTime is how long a PodSnapshot whose checkpoint failed is kept for people to read.
	failedTime = time.Hour
	// lostTime is how long one whose data is lost is kept. The data may come back.
	lostTime = 7 * 24 * time.Hour
)

// Expiry returns when a snapshot expires if it is not used, and why. A zero time means never. Policy is the
// snapshot's policy, or nil if that is gone.
func Expiry(policy *podsnapshotv1.PodSnapshotPolicy, s *podsnapshotv1.PodSnapshot) (at time.Time, why string) {
	if Lost(s) {
		c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
		failed := c.LastTransitionTime.Time // by the clock of its node
		if made := s.CreationTimestamp.Time; failed.Before(made) {
			failed = made
		}
		if DataLost(s) {
			return failed.Add(lostTime), "its data is lost"
		}
		return failed.Add(failedTime), "its checkpoint failed"
	}
	if policy == nil || !Captured(s) || OfSleep(s) {
		return time.Time{}, ""
	}
	timeout, err := policy.Spec.Timeout()
	if err != nil || timeout <= 0 {
		return time.Time{}, ""
	}
	used := s.CreationTimestamp.Time
	if t := s.Status.LastAccessTime; t != nil && t.After(used) {
		used = t.Add(AccessStep(policy)) // it may have been used until then without a record
	}
	return used.Add(timeout), "it was not used for " + policy.Spec.RetentionConfig.LastAccessTimeout
}

// AccessStep returns the precision of the recorded times at which a policy's snapshots were last used. Policy may be
// nil.
func AccessStep(policy *podsnapshotv1.PodSnapshotPolicy) time.Duration {
	const most = time.Minute
	if policy == nil {
		return most
	}
	timeout, err := policy.Spec.Timeout()
	if err != nil || timeout <= 0 {
		return most
	}
	return min(most, timeout/6)
}
