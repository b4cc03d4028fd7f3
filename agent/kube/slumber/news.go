package slumber

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"diapause.dev/agent/kube/control"
	"diapause.dev/api/snapshot"
)

// News are what the agent tells of pods that sleep. They are made before the agent's parts, which write into them;
// Slumbers read them. Its methods may be called concurrently, and do not block.
type News struct {
	pods  control.Queue // of the controller
	wakes *wakes
}

// NewNews returns news of which there are none yet.
func NewNews() *News { return &News{wakes: newWakes()} }

// Slept implements sleep.Cluster.
func (n *News) Slept(pod snapshot.PodRef) { n.kick(pod) }

// Woke implements sleep.Cluster.
func (n *News) Woke(pod snapshot.PodRef, cause string, took time.Duration) {
	n.note(pod, waken{cause: cause, took: took})
}

// WakeFailed implements sleep.Cluster.
func (n *News) WakeFailed(pod snapshot.PodRef, err error) { n.note(pod, waken{failure: err}) }

// note keeps how a wake went until the pod's condition shows it.
func (n *News) note(pod snapshot.PodRef, w waken) {
	n.wakes.put(pod.UID, w)
	n.kick(pod)
}

// SleepsOn implements sleep.Cluster.
func (n *News) SleepsOn(pod snapshot.PodRef) { n.kick(pod) }

// Waits implements admission.Cluster.
func (n *News) Waits(pod snapshot.PodRef) { n.kick(pod) }

func (n *News) kick(pod snapshot.PodRef) {
	n.pods.Kick(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}
