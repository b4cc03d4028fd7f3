package rules

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/podspec"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Seen is what the controller keeps of a pod, to compare PodSnapshots with. The API server says all of it, and no node.
type Seen struct {
	UID, Node, ServiceAccount string
	SpecHash                  string // of the distilled spec
	Labels                    map[string]string
	Mirror                    bool // a node's kubelet has made the pod by itself
}

// SeenOf returns what is kept of a pod.
func SeenOf(pod *corev1.Pod) Seen {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return Seen{
		UID: string(pod.UID), Node: pod.Spec.NodeName, ServiceAccount: ServiceAccount(pod), Labels: pod.Labels,
		SpecHash: podspec.Distil(pod).Hash(), Mirror: mirror,
	}
}

// Contradicts returns in what a pod contradicts that a PodSnapshot was made of it, on the PodSnapshot's node. It is
// empty if nothing does.
func (p Seen) Contradicts(s *podsnapshotv1.PodSnapshot) string {
	said := func(annotation string) string { return s.Annotations[annotation] }
	switch node, uid := said(podsnapshotv1.AnnotationOriginNode), said(podsnapshotv1.AnnotationOriginPodUID); {
	case p.Mirror:
		return "its pod was made by a kubelet"
	case uid != "" && uid != p.UID:
		return fmt.Sprintf("the UID of its pod is %.80q, that of the pod with its name is %s", uid, p.UID)
	case node != p.Node:
		return fmt.Sprintf("its pod was on node %q", p.Node)
	case said(podsnapshotv1.AnnotationServiceAccount) != p.ServiceAccount:
		return fmt.Sprintf("the service account of its pod is %s", p.ServiceAccount)
	case said(podsnapshotv1.AnnotationSpecHash) != p.SpecHash:
		return "its pod has another spec"
	case !has(p.Labels, s.Labels):
		return "its pod has other labels"
	}
	if _, said := s.Annotations[podsnapshotv1.AnnotationInheritable]; !said {
		return ""
	}
	if group, ok := Inheritable(s); !ok || !has(p.Labels, group) {
		return "it is for pods with other labels than its pod has"
	}
	return ""
}
