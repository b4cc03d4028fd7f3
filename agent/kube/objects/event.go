package objects

import (
	"hash/crc32"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Events makes the events of package notice. Its methods may be called concurrently.
type Events struct {
	nodeName string
	recorder events.EventRecorder
}

// Node makes an event on this process's node, without waiting for the API server. Events that differ in their text
// alone, which may be repeated with other figures for days, are counted as one.
func (e *Events) Node(n notice.Event, args ...any) {
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.nodeName, UID: types.UID(e.nodeName)}
	e.recorder.Eventf(node, nil, n.Type, n.Reason, n.Action, "%s", rules.Message(n.Say(args...)))
}

// say makes an event about a pod. Client-go counts events that differ in their text alone as one, and shows the first
// text: a pod would stay awake for what is long over. So the version of the pod, which nobody shows, keeps texts apart.
func (e *Events) say(about *corev1.ObjectReference, related runtime.Object, n notice.Event, args []any) {
	message := rules.Message(n.Say(args...))
	if about.ResourceVersion == "" {
		about.ResourceVersion = strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(message))), 10)
	}
	e.recorder.Eventf(about, related, n.Type, n.Reason, n.Action, "%s", message)
}

// Pod makes an event on a pod, without waiting for the API server. K names the PodSnapshot concerned, which need not
// exist: it keeps apart events that the API server would otherwise merge. Without a name there is none.
func (e *Events) Pod(ref snapshot.PodRef, k snapshot.Key, n notice.Event, args ...any) {
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
	e.say(pod, related, n, args)
}

// Annotations makes an event on a pod, about its annotations as they are now, without waiting for the API server. It
// names the version of the pod that it is about, so that one about later annotations is another one.
func (e *Events) Annotations(pod *corev1.Pod, n notice.Event, args ...any) {
	at := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion,
	}
	e.say(at, nil, n, args)
}
