package slumber

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	shimsleep "diapause.dev/runsc/sleep"
)

// conditions show in the pods' conditions which pods sleep.
type conditions struct {
	objects *objects.Objects
	sleeps  Sleeps
	waiting func(uid string) (why string, ok bool) // see Config.Waiting
	wakes   *wakes
}

// shown returns the pod's condition that says whether it sleeps.
func shown(pod *corev1.Pod) (shown corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == podsnapshotv1.ConditionAsleep {
			shown = c
		}
	}
	return shown
}

// show makes the pod's condition say whether it sleeps, and makes an event when that has changed.
func (c *conditions) show(ctx context.Context, pod *corev1.Pod, mark shimsleep.Mark, asleep bool) error {
	shown := shown(pod)
	was := shown.Status == corev1.ConditionTrue
	now, action := c.awake(pod), objects.ActionWake
	if asleep {
		now, action = c.asleep(pod, mark), objects.ActionSleep
	}
	// It woke meanwhile, and nobody has seen it.
	again := mark.Since.Truncate(time.Second).After(shown.LastTransitionTime.Time)
	news := now.Reason != shown.Reason || now.Reason == podsnapshotv1.ReasonWakeFailed && now.Message != shown.Message
	// Whether it is ready, which is no event.
	other := now.Reason == podsnapshotv1.ReasonSlept && now.Message != shown.Message
	if asleep == was && (!asleep || !news && !again && !other) {
		if !asleep { // it has slept and woken so fast that nobody has seen it, or will yet be seen to have slept
			c.wakes.forget(string(pod.UID), time.Now().Add(-wordTime))
		}
		return nil
	}
	version := ""
	if !asleep { // it may have ended in its sleep: then it is deleted, which a conflict brings to light
		version = pod.ResourceVersion
	}
	if err := patch(ctx, c.objects, pod, version, nil, &now); err != nil {
		return err
	}
	until := mark.Since // a wake that was told meanwhile is the end of this sleep
	if !asleep {
		until = time.Now()
	}
	c.wakes.forget(string(pod.UID), until)
	if was && now.Reason == podsnapshotv1.ReasonSlept || now.Reason == podsnapshotv1.ReasonEnded { // no news
		return nil
	}
	c.objects.Events.SleepEvent(objects.RefOf(pod), eventType(now.Reason), now.Reason, action, now.Message)
	return nil
}

// eventType returns the type of an event.
func eventType(reason string) string {
	if reason == podsnapshotv1.ReasonWaitsForMemory || reason == podsnapshotv1.ReasonWakeFailed {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// asleep returns the condition of a pod that sleeps.
func (c *conditions) asleep(pod *corev1.Pod, mark shimsleep.Mark) corev1.PodCondition {
	now := corev1.PodCondition{
		Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionTrue, Reason: podsnapshotv1.ReasonSlept,
		Message:            "The pod is saved and uses no memory; the next packet or exec wakes it",
		LastTransitionTime: metav1.NewTime(mark.Since),
	}
	if mark.Ready {
		now.Message = "The pod is saved and " + podsnapshotv1.ReadyToWake + ": the next packet or exec wakes it"
	}
	if why, waits := c.waiting(string(pod.UID)); waits {
		now.Reason, now.Message = podsnapshotv1.ReasonWaitsForMemory, "The pod is to be woken and waits: "+why
	}
	if why, failed := c.sleeps.Unwoken(string(pod.UID)); failed {
		now.Reason = podsnapshotv1.ReasonWakeFailed
		now.Message = rules.Message("The pod could not be woken, sleeps on, and its wake is retried: " + why)
	}
	return now
}

// awake returns the condition of a pod that does not sleep.
func (c *conditions) awake(pod *corev1.Pod) corev1.PodCondition {
	woke, known := c.wakes.of(string(pod.UID))
	if ended(pod) && woke.failure == nil {
		return corev1.PodCondition{
			Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionFalse, Reason: podsnapshotv1.ReasonEnded,
			Message: "The pod has ended", LastTransitionTime: metav1.Now(),
		}
	}
	now := corev1.PodCondition{
		Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionFalse, Reason: podsnapshotv1.ReasonWoke,
		Message: "The pod was woken", LastTransitionTime: metav1.Now(),
	}
	switch {
	case woke.failure != nil:
		now.Reason = podsnapshotv1.ReasonWakeFailed
		now.Message = rules.Message("The pod could not be woken, and its sandbox has ended: " + woke.failure.Error())
	case known:
		now.Message = fmt.Sprintf("The pod was woken by %s, within %d ms", woke.cause, woke.took.Milliseconds())
	case startedSince(pod, shown(pod).LastTransitionTime.Time):
		now.Reason = podsnapshotv1.ReasonWakeFailed
		now.Message = "The pod no longer sleeps, and containers of it have started again since it went to sleep"
	}
	return now
}

// startedSince reports whether one of a pod's running containers has started after a time.
func startedSince(pod *corev1.Pod, at time.Time) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil && c.State.Running.StartedAt.After(at)
	})
}

// ended reports whether all containers of a pod have ended for good.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
