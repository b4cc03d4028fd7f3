package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/podspec"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Which snapshots a pod can be restored from, and which of them it is. Package start (choose.go) asks.

// Newest orders snapshots: creation time descending, then name ascending.
func Newest(a, b *podsnapshotv1.PodSnapshot) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Captured reports whether there is a snapshot behind a PodSnapshot, at least on its node. Other nodes may restore it
// once it is confirmed.
func Captured(s *podsnapshotv1.PodSnapshot) bool {
	return s.DeletionTimestamp == nil && !Lost(s) &&
		meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint)
}

// Ready reports whether a snapshot was captured and confirmed.
func Ready(s *podsnapshotv1.PodSnapshot) bool {
	return s.DeletionTimestamp == nil && meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionReady)
}

// Replicated reports whether a snapshot is in the store, so that every node can get it.
func Replicated(s *podsnapshotv1.PodSnapshot) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated)
}

// NodeLocal reports whether a snapshot is in a store that only its node can see.
func NodeLocal(s *podsnapshotv1.PodSnapshot) bool {
	return whyNotReplicated(s, podsnapshotv1.ReasonNodeLocal) != ""
}

// NotInStore returns why a snapshot will never be in the store. It is empty if the snapshot is in the store, or may
// get there.
func NotInStore(s *podsnapshotv1.PodSnapshot) string {
	return whyNotReplicated(s, podsnapshotv1.ReasonFailed)
}

// whyNotReplicated returns why a snapshot is not replicated, if its condition has the given reason.
func whyNotReplicated(s *podsnapshotv1.PodSnapshot, reason string) string {
	c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason != reason {
		return ""
	}
	return c.Message
}

// Elsewhere returns nil if nodes other than the snapshot's own can get it. If they never can, it returns a refusal.
// If they may be able to later, the error is of kind ErrPending.
func Elsewhere(s *podsnapshotv1.PodSnapshot) error {
	node := s.Annotations[podsnapshotv1.AnnotationOriginNode]
	switch why := NotInStore(s); {
	case Replicated(s):
		return nil
	case NodeLocal(s):
		return Refuse("PodSnapshot %s/%s is stored on a disk of node %s: it can be restored only on that node", s.Namespace,
			s.Name, node)
	case why != "":
		return Refuse("PodSnapshot %s/%s is only on node %s, and will never be in the store: %s", s.Namespace, s.Name,
			node, why)
	}
	return fmt.Errorf("PodSnapshot %s/%s is on node %s only, its replication has not ended: %w", s.Namespace, s.Name, node,
		ErrPending)
}

// Lost reports whether there is no snapshot behind a PodSnapshot, or no longer one.
func Lost(s *podsnapshotv1.PodSnapshot) bool {
	return notReady(s, podsnapshotv1.ReasonFailed) || DataLost(s)
}

// DataLost reports whether the store of a PodSnapshot no longer has its data.
func DataLost(s *podsnapshotv1.PodSnapshot) bool { return notReady(s, podsnapshotv1.ReasonDataLost) }

// notReady reports whether a snapshot is not Ready for that reason.
func notReady(s *podsnapshotv1.PodSnapshot, reason string) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
}

// WhyNotReady returns the message of a snapshot's condition Ready.
func WhyNotReady(s *podsnapshotv1.PodSnapshot) string {
	if c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}

// NewPod is a pod that is about to start on a node.
type NewPod struct {
	Pod   *corev1.Pod
	Facts snapshot.Facts // of the node
	Node  string         // its name
	Now   time.Time      // by the API server's clock, if that is known
}

// Named checks the snapshot that the pod names. S is nil if there is no snapshot with that name. If the pod cannot be
// restored from it, Named returns a refusal. If the snapshot is still being made, the error is of kind ErrPending.
func (p NewPod) Named(name string, s *podsnapshotv1.PodSnapshot) error {
	namespace := p.Pod.Namespace
	if other, _, ok := strings.Cut(name, "/"); ok && other != namespace {
		return Refuse("PodSnapshot %.200s is of another namespace: a pod is restored only from snapshots of its own, %s",
			name, namespace)
	}
	if s == nil {
		return Refuse("there is no PodSnapshot %.200s in namespace %s", name, namespace)
	}
	if s.DeletionTimestamp != nil {
		return Refuse("PodSnapshot %s/%s is being deleted", namespace, s.Name)
	}
	if OfSleep(s) {
		return Refuse("PodSnapshot %s/%s is of the sleep of pod %s, and serves that pod alone: create a "+
			"PodSnapshotManualTrigger for the pod, and name the snapshot that it makes", namespace, s.Name,
			s.Annotations[podsnapshotv1.AnnotationOriginPod])
	}
	if !Captured(s) {
		return notCaptured(s)
	}
	if reasons := p.misfits(s); len(reasons) > 0 {
		return cannot(s, reasons)
	}
	return p.known(s)
}

// notCaptured returns an error that says why a snapshot cannot be restored from yet, or no longer.
func notCaptured(s *podsnapshotv1.PodSnapshot) error {
	c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
	if c == nil || c.Reason == podsnapshotv1.ReasonAwaitingCheckpoint {
		return fmt.Errorf("PodSnapshot %s/%s is still being made: %w", s.Namespace, s.Name, ErrPending)
	}
	return Refuse("PodSnapshot %s/%s is not Ready: %s: %s", s.Namespace, s.Name, c.Reason, c.Message)
}

// NewestOf returns the snapshot to restore a pod from if policy selects the pod and the pod names no snapshot: the
// newest that fits and that is known to come from a pod. If the pod's group has no snapshot, it returns nil. If the
// group has some and none fits, it returns a refusal. If the controller may still confirm one, the error is of kind
// ErrPending.
func (p NewPod) NewestOf(policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) (*podsnapshotv1.PodSnapshot, error) {
	var refusal error
	for _, s := range p.group(policy, all) {
		err := p.known(s)
		if reasons := p.misfits(s); len(reasons) > 0 {
			err = cannot(s, reasons)
		}
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, ErrPending):
			return nil, err
		case refusal == nil:
			refusal = err
		}
	}
	return nil, refusal
}

// Scope returns how much of a pod a snapshot keeps.
func Scope(s *podsnapshotv1.PodSnapshot) snapshot.Scope {
	return snapshot.Scope(s.Annotations[podsnapshotv1.AnnotationScope])
}

// group returns the captured snapshots of the pod's group, newest first. If the policy has no grouping labels, pods
// with equal specs make a group; for root file systems alone, specs do not count.
func (p NewPod) group(policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) []*podsnapshotv1.PodSnapshot {
	out := p.labelled(policy, all)
	if len(GroupKeys(policy)) > 0 {
		return out
	}
	hash := podspec.Distil(p.Pod).Hash()
	return slices.DeleteFunc(out, func(s *podsnapshotv1.PodSnapshot) bool {
		return Scope(s) != snapshot.RootfsOnly && s.Annotations[podsnapshotv1.AnnotationSpecHash] != hash
	})
}

// labelled returns a policy's captured snapshots that have the labels of the pod's group, newest first.
func (p NewPod) labelled(policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) []*podsnapshotv1.PodSnapshot {
	want, missing := Group(policy, p.Pod.Labels)
	if len(missing) > 0 {
		return nil
	}
	var out []*podsnapshotv1.PodSnapshot
	for i := range all {
		s := &all[i]
		if s.Namespace == p.Pod.Namespace && s.Spec.PolicyName == policy.Name && Captured(s) && !OfSleep(s) &&
			has(s.Labels, want) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, Newest)
	return out
}

// maxCompared bounds how many specs are compared with a pod's.
const maxCompared = 32

// Nearest returns the snapshot that is most similar to the pod, and where their specs differ. It returns nil if there
// is none, or if the policy has grouping labels. It is for a pod for which NewestOf finds nothing. Nobody can tell
// whether that pod was meant to be restored, because pods of several kinds may share a policy.
func (p NewPod) Nearest(policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) (nearest *podsnapshotv1.PodSnapshot, differences []string) {
	if len(GroupKeys(policy)) > 0 {
		return nil, nil
	}
	seen := make(map[string]bool)
	for _, s := range p.labelled(policy, all) {
		hash := s.Annotations[podsnapshotv1.AnnotationSpecHash]
		if seen[hash] || len(seen) == maxCompared {
			continue
		}
		seen[hash] = true
		if d := specDiffers(s, p.Pod); nearest == nil || len(d) < len(differences) {
			nearest, differences = s, d
		}
	}
	return nearest, differences
}

func has(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// misfits lists the reasons why a pod cannot be restored from a snapshot. They do not include CPU features, which
// runsc.Compatible compares later (fit in agent/restore). So a pod that is given a snapshot here can still be refused
// there.
func (p NewPod) misfits(s *podsnapshotv1.PodSnapshot) (reasons []string) {
	differ := func(what, annotation, want string) {
		if got := s.Annotations[annotation]; got != want {
			reasons = append(reasons, fmt.Sprintf("%s differs (%.80q in the snapshot, %.80q here)", what, got, want))
		}
	}
	differ("service account", podsnapshotv1.AnnotationServiceAccount, ServiceAccount(p.Pod))
	differ("architecture", podsnapshotv1.AnnotationArchitecture, p.Facts.Architecture)
	differ("runsc version", podsnapshotv1.AnnotationRunscVersion, p.Facts.RunscVersion)
	if Scope(s) == snapshot.RootfsOnly {
		return reasons // files fit a pod of any spec
	}
	return append(reasons, specDiffers(s, p.Pod)...)
}

// specDiffers lists where a pod's distilled spec differs from a snapshot's.
func specDiffers(s *podsnapshotv1.PodSnapshot, pod *corev1.Pod) []string {
	hash, spec := s.Annotations[podsnapshotv1.AnnotationSpecHash], podspec.Distil(pod)
	if hash == spec.Hash() {
		return nil
	}
	if saved, err := podspec.Decode([]byte(s.Annotations[podsnapshotv1.AnnotationDistilledSpec]), hash); err == nil {
		if d := podspec.Differences(saved, spec); len(d) > 0 {
			return d
		}
	}
	return []string{"the pod's spec differs"}
}

func cannot(s *podsnapshotv1.PodSnapshot, reasons []string) error {
	return Refuse("PodSnapshot %s/%s does not fit: %s", s.Namespace, s.Name, strings.Join(reasons, "; "))
}
