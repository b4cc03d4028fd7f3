package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/workload/answers"
)

const (
	// mostIdle is the longest time for which a pod of a SleepPolicy is left alone.
	mostIdle = 12 * time.Second
	// wakeIn is when a pod that sleeps is woken by the clock.
	wakeIn = 2 * time.Second
	// knownTime bounds how long the snapshot of a sleep may take to be replicated and confirmed. Then its pod is not
	// deleted in its sleep.
	knownTime = 30 * time.Second
	// graceAsleep is the grace period of a pod that is deleted in its sleep, in seconds.
	graceAsleep = client.GracePeriodSeconds(60)
)

// fall has a pod fall asleep, and reports whether it has.
type fall func(*lane, context.Context) (bool, error)

// napping returns the step of lanes whose pods fall asleep and wake, and end at times.
func napping(how fall) func(*lane, context.Context) error {
	return func(l *lane, ctx context.Context) error {
		if l.rng.IntN(8) == 0 {
			return l.end(ctx)
		}
		return l.nap(ctx, how, l.wake)
	}
}

// useGolden checkpoints one pod for all. Then pods of its group start from it while another sleeps.
func (l *lane) useGolden(ctx context.Context) error {
	if len(l.saved) == 0 {
		return l.freeze(ctx)
	}
	if l.rng.IntN(4) == 0 {
		return l.end(ctx)
	}
	return l.nap(ctx, (*lane).request, func(ctx context.Context) error {
		if err := l.visited(ctx); err != nil {
			return err
		}
		return l.wake(ctx)
	})
}

// visited has another pod of the group start from the newest snapshot, and end.
func (l *lane) visited(ctx context.Context) error {
	guest := *l
	guest.name, guest.pod, guest.anew = l.name+"-guest", nil, false
	return errors.Join(guest.begin(ctx, ""), guest.end(ctx))
}

// bequeath deletes the pod in its sleep, or wakes it. Deleted, its successors go on from where it slept, also if the
// agent or the API server was away.
func (l *lane) bequeath(ctx context.Context) error {
	if l.rng.IntN(3) == 0 {
		return l.nap(ctx, (*lane).request, l.wake)
	}
	l.doubtful[""] = true // what is saved at the pod's end, if it wakes before
	return l.nap(ctx, (*lane).request, func(ctx context.Context) error {
		name, err := l.known(ctx)
		if err != nil || name == "" {
			return err
		}
		if err := l.end(ctx, graceAsleep); err != nil {
			return err
		}
		inherited, err := l.inherited(ctx, name)
		if err == nil && !inherited {
			err = fmt.Errorf("snapshot %s, on which the pod was deleted asleep, does not serve its successors", name)
		}
		if err != nil {
			return err
		}
		l.count.inherited.Add(1)
		l.saved = append(l.saved, saved{name, l.slept})
		return nil
	})
}

// inherited reports whether the snapshot of the sleep of a pod that is gone serves the pod's successors. It waits until
// that is settled.
func (l *lane) inherited(ctx context.Context, name string) (ok bool, err error) {
	err = l.until(ctx, "the snapshot of a pod that was deleted asleep", func() error {
		s := new(podsnapshotv1.PodSnapshot)
		err := l.client.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: name}, s)
		ok = err == nil && rules.Inherited(s)
		if err != nil || ok {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("PodSnapshot %s: %w: %+v", name, errNotYet, s.Status.Conditions)
	})
	return ok, err
}

// nap has the pod fall asleep, and then something else happen to it. If it is still there, its life goes on.
func (l *lane) nap(ctx context.Context, how fall, then func(context.Context) error) error {
	before, err := l.state(ctx)
	if err != nil || l.anew {
		return err
	}
	l.slept, l.sidecars = before.Counter, l.count.sidecars.Load()
	asleep, err := how(l, ctx)
	if err != nil {
		return err
	}
	if asleep {
		l.count.slept.Add(1)
		if err := then(ctx); err != nil || l.pod == nil {
			return err
		}
	} else {
		l.count.awake.Add(1)
	}
	return l.goesOn(ctx, before)
}

// goesOn returns an error unless the pod's life goes on.
func (l *lane) goesOn(ctx context.Context, before answers.State) error {
	now, err := l.state(ctx)
	if err != nil {
		return err
	}
	if l.anew {
		return l.isReady(ctx, "")
	}
	if now.Boot != before.Boot || now.Counter < before.Counter {
		return fmt.Errorf("the pod is at %d of life %s, and was at %d of %s", now.Counter, now.Boot, before.Counter,
			before.Boot)
	}
	return l.rightBytes(ctx)
}

// excuse forgets that the pod has slept if its sandbox may have been killed when it ran again and loaded its memory:
// a pod does not go back to its sleep then. If its wake has failed, it does.
func (l *lane) excuse() {
	c := condition(l.pod.Pod, podsnapshotv1.ConditionPodRestored)
	failed := c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "wake sandbox")
	if l.count.sidecars.Load() > l.sidecars && !failed {
		l.slept = 0
	}
}

// request asks for the pod's sleep.
func (l *lane) request(ctx context.Context) (bool, error) {
	s, err := l.answered(ctx, podsnapshotv1.AnnotationSleep,
		func(s podsnapshotv1.SleepStatus) string { return s.Sleep })
	if err == nil && s.State != podsnapshotv1.SleepAsleep {
		l.Logf("%s: the pod does not sleep: %s: %.200s", l.name, s.State, s.Message)
	}
	return s.State == podsnapshotv1.SleepAsleep, err
}

// idle leaves the pod alone, for its policy to put it to sleep.
func (l *lane) idle(ctx context.Context) (asleep bool, err error) {
	over := time.Now().Add(time.Duration(l.rng.Int64N(int64(mostIdle))))
	err = l.until(ctx, "an idle pod", func() error {
		c, err := l.asleep(ctx)
		if asleep = c.Status == corev1.ConditionTrue; err == nil && !asleep && time.Now().Before(over) {
			err = errNotYet
		}
		return err
	})
	return asleep, err
}

// asleep returns the condition that says whether the pod sleeps.
func (l *lane) asleep(ctx context.Context) (corev1.PodCondition, error) {
	p := new(corev1.Pod)
	err := l.client.Get(ctx, client.ObjectKeyFromObject(l.pod.Pod), p)
	return condition(p, podsnapshotv1.ConditionAsleep), err
}

// wake wakes the pod in one of the ways that there are. The first packet of who looks at it is one.
func (l *lane) wake(ctx context.Context) error {
	switch l.rng.IntN(4) {
	case 0:
		return l.untilEnded(ctx, "exec", func() error {
			args := append([]string{"--namespace=" + l.namespace, "exec", l.name, "--"}, probeCommand...)
			_, err := l.Kubectl(ctx, args...)
			return err
		})
	case 1:
		_, err := l.answered(ctx, podsnapshotv1.AnnotationWake,
			func(s podsnapshotv1.SleepStatus) string { return s.Wake })
		return err
	case 2:
		return l.wokenByClock(ctx)
	}
	return nil
}

// wokenByClock returns when the clock has woken the pod. It may have fallen asleep again.
func (l *lane) wokenByClock(ctx context.Context) error {
	at := time.Now().Add(wakeIn).Truncate(time.Second)
	if err := l.annotated(ctx, podsnapshotv1.AnnotationWakeAt, at.Format(time.RFC3339)); err != nil {
		return err
	}
	return l.until(ctx, "wake by the clock", func() error {
		c, err := l.asleep(ctx)
		if err == nil && (time.Now().Before(at) || c.Status == corev1.ConditionTrue && c.LastTransitionTime.Time.Before(at)) {
			err = fmt.Errorf("the condition is %+v", c)
		}
		return err
	})
}

// annotated gives the pod an annotation.
func (l *lane) annotated(ctx context.Context, key, value string) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value))
	return l.until(ctx, "annotation "+key, func() error { return l.client.Patch(ctx, l.pod.DeepCopy(), patch) })
}

// answered asks by an annotation and waits for the answer.
func (l *lane) answered(ctx context.Context, key string, of func(podsnapshotv1.SleepStatus) string,
) (s podsnapshotv1.SleepStatus, err error) {
	l.asked++
	id := fmt.Sprint(l.asked)
	if err := l.annotated(ctx, key, id); err != nil {
		return s, err
	}
	err = l.until(ctx, "answer to "+key, func() error {
		p := new(corev1.Pod)
		if err := l.client.Get(ctx, client.ObjectKeyFromObject(l.pod.Pod), p); err != nil {
			return err
		}
		if s = podsnapshotv1.ParseSleepStatus(p.Annotations); of(s) != id || s.State == podsnapshotv1.SleepWorking {
			return fmt.Errorf("request %s: status %+v", id, s)
		}
		return nil
	})
	return s, err
}

// known returns the name of the snapshot on which the pod sleeps, once the cluster would have successors inherit it if
// the pod's node were lost. It is empty if that takes too long.
func (l *lane) known(ctx context.Context) (name string, err error) {
	over := time.Now().Add(knownTime)
	err = l.until(ctx, "the snapshot of a sleep", func() error {
		var all podsnapshotv1.PodSnapshotList
		if err := l.client.List(ctx, &all, client.InNamespace(l.namespace)); err != nil {
			return err
		}
		for i := range all.Items {
			s := &all.Items[i]
			if s.Annotations[podsnapshotv1.AnnotationOriginPodUID] == string(l.pod.UID) && rules.OfSleep(s) &&
				rules.Asleep(s) == metav1.ConditionTrue && rules.Replicated(s) && rules.Confirmed(s) {
				name = s.Name
				return nil
			}
		}
		if time.Now().Before(over) {
			return errNotYet
		}
		return nil
	})
	return name, err
}
