package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// TestSleepTriggered has a trigger ask for a checkpoint of a pod that sleeps. The pod sleeps on, and the snapshot is
// one as any other: a new pod goes on from it, and the sleeper wakes with what it was, even if the PodSnapshot of its
// sleep is deleted. If its policy stops pods, the pod ends in its sleep, successfully, and its successor goes on.
func TestSleepTriggered(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(stoppingPolicy, w.namespace))
	stopping := func(p *corev1.Pod) {
		p.Labels["app"], p.Spec.RestartPolicy = "stopping", corev1.RestartPolicyNever
	}
	started, other := w.start(w.pod("web")), w.start(w.pod("ends", stopping))
	p, ends := w.finish(started), w.finish(other)
	before, then := w.life(p), w.life(ends)

	w.sleeps("web", "one")
	s := w.checkpoint(p)
	w.replicated(s.name)
	made := w.snapshot(s.name)
	if rules.Purpose(made) != snapshot.ForCheckpoint || len(made.Labels) == 0 || made.Spec.PolicyName != "policy" ||
		rules.Asleep(made) != metav1.ConditionUnknown {
		t.Errorf("PodSnapshot %+v", made)
	}
	w.restored(w.run(w.pod("branch", from(s.name))), s.name, before)
	for _, o := range w.snapshots() {
		if o.Annotations[podsnapshotv1.AnnotationOriginPod] == "web" && rules.OfSleep(&o) {
			w.discard(o.Name) // is gone at once, and yet the pod wakes
		}
	}
	w.well("web")
	w.whole(p, before)
	w.wakes("web", "packet")

	w.sleeps("ends", "one")
	name, err := w.outcome(w.ctx, w.trigger("stops", "ends"), func() {})
	w.must(err)
	w.must(until(w.ctx, func() error {
		if now := w.get("ends"); now.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("the pod is %s: %+v", now.Status.Phase, now.Status.ContainerStatuses)
		}
		return nil
	}))
	if events := w.kubectl("get", "events", "--field-selector=involvedObject.name=ends"); strings.Contains(events,
		podsnapshotv1.ReasonWoke) {
		t.Errorf("the pod was woken:\n%s", events)
	}
	w.remove("ends")
	w.restored(w.run(w.pod("ends", stopping)), name, then)
	w.must(until(w.ctx, func() error { // that of its sleep goes with it
		if all := w.snapshots(); len(all) > 2 {
			return errors.New("the snapshot of the sleep is left")
		}
		return nil
	}))
}
