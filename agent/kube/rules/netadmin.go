package rules

import (
	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/netadmin"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// NetAdmin returns what package netadmin must know about a pod. If one of the policies that select the pod has
// checkpoints fail, they fail.
func NetAdmin(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy) netadmin.Case {
	c := netadmin.Case{Container: podspec.NetAdmin(pod)}
	for _, p := range Selecting(pod, policies) {
		v, ok := p.Annotations[podsnapshotv1.AnnotationOnNetAdmin]
		c.Fails = c.Fails || ok && v != podsnapshotv1.OnNetAdminWarn
	}
	return c
}

// checkOnNetAdmin returns a refusal if a policy's annotation about NET_ADMIN has a value that is not known.
func checkOnNetAdmin(p *podsnapshotv1.PodSnapshotPolicy) error {
	v, ok := p.Annotations[podsnapshotv1.AnnotationOnNetAdmin]
	if !ok || v == podsnapshotv1.OnNetAdminWarn || v == podsnapshotv1.OnNetAdminFail {
		return nil
	}
	return Refuse("annotation %s is %.80q, and counts as %s: its values are %s and %s, or remove it",
		podsnapshotv1.AnnotationOnNetAdmin, v, podsnapshotv1.OnNetAdminFail, podsnapshotv1.OnNetAdminWarn,
		podsnapshotv1.OnNetAdminFail)
}
