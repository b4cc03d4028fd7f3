package slumber

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
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
	now, event := c.awake(pod)
	if asleep {
		now, event = c.asleep(pod, mark)
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
	event.Text = "%s" // it is filled in
	c.objects.Events.Pod(objects.RefOf(pod), snapshot.Key{}, event, now.Message)
	return nil
}

// asleep returns the condition of a pod that sleeps, and the event that says the same.
func (c *conditions) asleep(pod *corev1.Pod, mark shimsleep.Mark) (corev1.PodCondition, notice.Event) {
	event := notice.Slept
	if mark.Ready {
		event = notice.SleptReady
	}
	message := event.Say()
	if why, waits := c.waiting(string(pod.UID)); waits {
		event = notice.WaitsForMemory
		message = event.Say(why)
	}
	if why, failed := c.sleeps.Unwoken(string(pod.UID)); failed {
		event = notice.SleepsOn
		message = rules.Message(event.Say(why))
	}
	return corev1.PodCondition{
		Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionTrue, Reason: event.Reason, Message: message,
		LastTransitionTime: metav1.NewTime(mark.Since),
	}, event
}

// awake returns the condition of a pod that does not sleep, and the event that says the same.
func (c *conditions) awake(pod *corev1.Pod) (corev1.PodCondition, notice.Event) {
	woke, known := c.wakes.of(string(pod.UID))
	event := notice.Woke
	message := event.Say()
	switch {
	case woke.failure != nil:
		event = notice.EndedByWake
		message = rules.Message(event.Say(woke.failure))
	case ended(pod):
		event = notice.Ended
		message = event.Say()
	case known:
		event = notice.WokeBy
		message = event.Say(woke.cause, woke.took.Milliseconds())
	case startedSince(pod, shown(pod).LastTransitionTime.Time):
		event = notice.StartedAgain
		message = event.Say()
	}
	return corev1.PodCondition{
		Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionFalse, Reason: event.Reason, Message: message,
		LastTransitionTime: metav1.Now(),
	}, event
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
