package trial

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// program is that of the image, and its arguments make it the workload.
var program = []string{"/usr/local/bin/diapause-agent", "trial", "workload"}

func (t *trial) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: t.Namespace, Name: Name}
}

// object names the pod.
func (t *trial) object() *corev1.Pod { return &corev1.Pod{ObjectMeta: t.meta()} }

func (t *trial) trigger() *podsnapshotv1.PodSnapshotManualTrigger {
	return &podsnapshotv1.PodSnapshotManualTrigger{
		ObjectMeta: t.meta(),
		Spec:       podsnapshotv1.PodSnapshotManualTriggerSpec{TargetPod: Name},
	}
}

func (t *trial) policy() *podsnapshotv1.PodSnapshotPolicy {
	return &podsnapshotv1.PodSnapshotPolicy{
		ObjectMeta: t.meta(),
		Spec: podsnapshotv1.PodSnapshotPolicySpec{
			StorageConfigName: t.StorageConfig,
			Selector:          metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}},
			TriggerConfig:     podsnapshotv1.TriggerConfig{Type: "manual", PostCheckpoint: "resume"},
		},
	}
}

// pod runs the workload, from the image of the pod that runs the trial. With a snapshot it is restored from that, or
// does not start.
func (t *trial) pod(snapshot, node string) *corev1.Pod {
	own := t.self.Spec.Containers[0]
	p := t.object()
	p.Labels = map[string]string{label: "true"}
	if snapshot != "" {
		p.Annotations = map[string]string{
			podsnapshotv1.AnnotationSnapshotName:     snapshot,
			podsnapshotv1.AnnotationOnRestoreFailure: podsnapshotv1.OnRestoreFailureFail,
		}
	}
	p.Spec = corev1.PodSpec{
		RuntimeClassName: &t.RuntimeClass, NodeName: node, ImagePullSecrets: t.self.Spec.ImagePullSecrets,
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(bool),
		TerminationGracePeriodSeconds: new(int64(1)), SecurityContext: t.self.Spec.SecurityContext,
		Containers: []corev1.Container{{
			Name: "workload", Image: own.Image, ImagePullPolicy: own.ImagePullPolicy, Command: program,
			SecurityContext: own.SecurityContext,
		}},
	}
	return p
}

// podCondition returns a condition of a pod, empty if it has none of that type.
func podCondition(p *corev1.Pod, of string) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if string(c.Type) == of {
			return c
		}
	}
	return corev1.PodCondition{}
}
