package objects

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Actions of events.
const (
	ActionClock      = "CompareClocks"
	ActionSweep      = "Sweep"
	ActionCheckpoint = "Checkpoint"
	ActionRestore    = "Restore"
	ActionStart      = "Start"
	ActionSleep      = "Sleep"
	ActionWake       = "Wake"
)

// NodeEvent makes an event on this process's node, without waiting for the API server.
func (o *Objects) NodeEvent(kind, action, message string) {
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: o.nodeName, UID: types.UID(o.nodeName)}
	o.events.Eventf(node, nil, kind, podsnapshotv1.EventReason, action, "%s", rules.Message(message))
}

// Event makes an event on a pod, without waiting for the API server. K names the PodSnapshot concerned, which need
// not exist: it keeps apart events that the API server would otherwise merge.
func (o *Objects) Event(ref snapshot.PodRef, k snapshot.Key, kind, action, message string) {
	if ref.Name == "" {
		return
	}
	pod := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID),
	}
	var related runtime.Object
	if k.Name != "" {
		related = &corev1.ObjectReference{
			APIVersion: podsnapshotv1.GroupVersion.String(), Kind: "PodSnapshot", Namespace: k.Namespace, Name: k.Name,
		}
	}
	o.events.Eventf(pod, related, kind, podsnapshotv1.EventReason, action, "%s", rules.Message(message))
}

// SleepEvent makes an event on a pod, about its sleep, without waiting for the API server.
func (o *Objects) SleepEvent(ref snapshot.PodRef, kind, reason, action, message string) {
	pod := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID),
	}
	o.events.Eventf(pod, nil, kind, reason, action, "%s", rules.Message(message))
}

// AnnotationEvent makes a warning on a pod, about its annotations as they are now, without waiting for the API server.
// Events that differ in their text alone are counted as one. So it names the version of the pod that it is about.
func (o *Objects) AnnotationEvent(pod *corev1.Pod, message string) {
	at := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion,
	}
	o.events.Eventf(at, nil, corev1.EventTypeWarning, podsnapshotv1.ReasonInvalidAnnotation, ActionWake, "%s",
		rules.Message(message))
}
