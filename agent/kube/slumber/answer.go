package slumber

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// answers carry out what annotations of pods ask for, and answer in another annotation. Its methods may be called
// concurrently.
type answers struct {
	objects *objects.Objects
	sleeps  Sleeps
	waker   Waker
	work    *control.Background
	kick    func(snapshot.PodRef) // looks at a pod again
	log     *slog.Logger

	mu   sync.Mutex
	busy map[types.UID]bool // pods for which a request is carried out
}

// maxID bounds the value of an annotation that asks, in bytes.
const maxID = 253

// answer carries out the requests in the pod's annotations that are not answered yet. If both are new, the pod sleeps
// and is then woken.
func (a *answers) answer(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning {
		return nil
	}
	st := podsnapshotv1.ParseSleepStatus(pod.Annotations)
	asked, woken := pod.Annotations[podsnapshotv1.AnnotationSleep], pod.Annotations[podsnapshotv1.AnnotationWake]
	switch {
	case len(asked) > maxID, len(woken) > maxID:
		return nil
	case asked != "" && asked != st.Sleep:
		st.Sleep = asked
		return a.begin(ctx, pod, st, a.putToSleep)
	case woken != "" && woken != st.Wake:
		st.Wake = woken
		return a.begin(ctx, pod, st, a.wakeUp)
	case st.State == podsnapshotv1.SleepWorking && !a.working(pod.UID): // an agent that has ended had taken it
		st.State, st.Message = podsnapshotv1.SleepFailed, "the agent ended before it was done"
		return a.write(ctx, pod, pod.ResourceVersion, st)
	}
	return nil
}

func (a *answers) working(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.busy[uid]
}

// begin takes a request and carries it out in the background, unless one of the pod is under way: it is looked at again
// at that one's end.
func (a *answers) begin(ctx context.Context, pod *corev1.Pod, st podsnapshotv1.SleepStatus,
	do func(*corev1.Pod) (podsnapshotv1.SleepState, error),
) error {
	a.mu.Lock()
	was := a.busy[pod.UID]
	a.busy[pod.UID] = true
	a.mu.Unlock()
	if was {
		return nil
	}
	st.State, st.Message = podsnapshotv1.SleepWorking, ""
	if err := a.write(ctx, pod, pod.ResourceVersion, st); err != nil {
		a.end(pod)
		return err
	}
	a.work.Go(func() {
		defer a.end(pod)
		state, err := do(pod)
		st.State = state
		if err != nil {
			st.Message = rules.Message(err.Error())
		}
		if a.work.Life.Err() == nil {
			a.writeAnswer(pod, st)
		}
	})
	return nil
}

// end lets the next request of the pod begin.
func (a *answers) end(pod *corev1.Pod) {
	a.mu.Lock()
	delete(a.busy, pod.UID)
	a.mu.Unlock()
	a.kick(objects.RefOf(pod))
}

func (a *answers) putToSleep(pod *corev1.Pod) (podsnapshotv1.SleepState, error) {
	err := allowed(a.work.Life, a.objects, pod)
	if err == nil {
		err = rules.NetAdmin(pod, nil).Sleep(rules.PodKey(pod))
	}
	if err == nil {
		_, err = a.sleeps.Sleep(a.work.Life, a.work.Life, checkpoint.Options{Target: pod.Namespace + "/" + pod.Name})
	}
	if errors.Is(err, checkpoint.ErrAsleep) {
		return podsnapshotv1.SleepAsleep, nil
	}
	if err != nil {
		a.objects.Events.Pod(objects.RefOf(pod), snapshot.Key{}, notice.StaysAwake, err)
		return podsnapshotv1.SleepFailed, err
	}
	return podsnapshotv1.SleepAsleep, nil
}

func (a *answers) wakeUp(pod *corev1.Pod) (podsnapshotv1.SleepState, error) {
	if _, err := a.waker.Wake(a.work.Life, pod.Namespace+"/"+pod.Name, "request"); err != nil {
		return podsnapshotv1.SleepFailed, err
	}
	return podsnapshotv1.SleepAwake, nil
}

// Answers are written again for answerTime.
const (
	answerTime  = 10 * time.Minute
	answerPause = time.Second
)

// writeAnswer writes the answer to a request that is done.
func (a *answers) writeAnswer(pod *corev1.Pod, st podsnapshotv1.SleepStatus) {
	ctx, cancel := context.WithTimeout(a.work.Life, answerTime)
	defer cancel()
	for {
		err := a.write(ctx, pod, "", st)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return // done, or another pod has the name
		}
		a.log.Warn("the answer about a pod's sleep is not written yet", "pod", rules.PodKey(pod), "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(answerPause):
		}
	}
}

func (a *answers) write(ctx context.Context, pod *corev1.Pod, version string, st podsnapshotv1.SleepStatus) error {
	b, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("sleep status of pod %s: %w", rules.PodKey(pod), err)
	}
	return patch(ctx, a.objects, pod, version, map[string]string{podsnapshotv1.AnnotationSleepStatus: string(b)}, nil)
}

// patch changes annotations or a condition of the pod with this UID and, unless it is empty, this resource version.
func patch(ctx context.Context, o *objects.Objects, pod *corev1.Pod, version string, annotations map[string]string,
	condition *corev1.PodCondition,
) error {
	metadata := map[string]any{"uid": pod.UID}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	whole := map[string]any{"metadata": metadata}
	if condition != nil {
		whole["status"] = map[string]any{"conditions": []corev1.PodCondition{*condition}}
	}
	b, err := json.Marshal(whole)
	if err == nil {
		err = o.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, b))
	}
	if err != nil {
		return fmt.Errorf("status of pod %s: %w", rules.PodKey(pod), err)
	}
	return nil
}
