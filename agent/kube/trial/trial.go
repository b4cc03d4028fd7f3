// Package trial tries an installation with one pod: it is checkpointed, restored, put to sleep and woken. After each
// step the pod must be the one that it was, which only its memory knows.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Name is that of the pod, its policy and its trigger.
const Name = "diapause-trial"

const (
	label       = "diapause.dev/trial" // by which the policy selects the pod
	poll        = time.Second
	cleanupTime = 2 * time.Minute
)

// Config says what is tried, and how to reach the cluster.
type Config struct {
	Client client.Client
	// Logs returns the last line that a pod has written; empty: none.
	Logs func(ctx context.Context, namespace, pod string) (string, error)
	// Namespace has the pod of the trial, and the one that runs the trial, whose name is Pod. The former runs the
	// latter's image.
	Namespace, Pod string
	RuntimeClass   string
	StorageConfig  string    // name of the PodSnapshotStorageConfig
	Out            io.Writer // what was done, a line a step
}

// trial is a trial under way.
type trial struct {
	Config
	self corev1.Pod // which runs the trial
}

// Run does all steps, and removes what it has made. If the trial fails, so does it.
func Run(ctx context.Context, c Config) (err error) {
	t := &trial{Config: c}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Pod}, &t.self); err != nil {
		return fmt.Errorf("trial: read its own pod: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		err = errors.Join(err, t.clear(ctx))
	}()
	if err := t.clear(ctx); err != nil { // what an earlier trial has left
		return err
	}
	return t.steps(ctx)
}

func (t *trial) steps(ctx context.Context) error {
	if err := t.Client.Create(ctx, t.policy()); err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	first, err := t.start(ctx, "", "")
	if err != nil {
		return fmt.Errorf("trial: start a pod: %w", err)
	}
	life, err := t.life(ctx)
	if err != nil {
		return err
	}
	t.say("a pod of the RuntimeClass %s runs on node %s", t.RuntimeClass, first.Spec.NodeName)
	snapshot, err := t.checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("trial: checkpoint the pod: %w", err)
	}
	t.say("it was checkpointed: PodSnapshot %s", snapshot)
	if err := t.restore(ctx, snapshot, first.Spec.NodeName, life); err != nil {
		return fmt.Errorf("trial: restore the pod: %w", err)
	}
	t.say("it was restored")
	return t.sleepAndWake(ctx, life)
}

// restore deletes the pod and starts it anew from its snapshot. It does so on the same node: the store may be a disk
// of that.
func (t *trial) restore(ctx context.Context, snapshot, node, life string) error {
	if err := t.remove(ctx, t.object()); err != nil {
		return err
	}
	p, err := t.start(ctx, snapshot, node)
	if err != nil {
		return err
	}
	if c := podCondition(p, podsnapshotv1.ConditionPodRestored); c.Status != corev1.ConditionTrue {
		return fmt.Errorf("its condition %s is %q: %s", podsnapshotv1.ConditionPodRestored, c.Status, c.Message)
	}
	return t.same(ctx, life)
}

// sleepAndWake puts the pod to sleep and wakes it.
func (t *trial) sleepAndWake(ctx context.Context, life string) error {
	if err := t.turn(ctx, podsnapshotv1.AnnotationSleep, corev1.ConditionTrue); err != nil {
		return fmt.Errorf("trial: put the pod to sleep: %w", err)
	}
	t.say("it sleeps")
	if err := t.turn(ctx, podsnapshotv1.AnnotationWake, corev1.ConditionFalse); err != nil {
		return fmt.Errorf("trial: wake the pod: %w", err)
	}
	if err := t.same(ctx, life); err != nil {
		return fmt.Errorf("trial: the pod that has slept: %w", err)
	}
	t.say("it woke")
	return nil
}

// start makes the pod and waits until it is ready. Snapshot and node may be empty.
func (t *trial) start(ctx context.Context, snapshot, node string) (*corev1.Pod, error) {
	p := t.pod(snapshot, node)
	if err := t.Client.Create(ctx, p); err != nil {
		return nil, err
	}
	return p, t.await(ctx, p, "is not ready", func() bool {
		return podCondition(p, string(corev1.PodReady)).Status == corev1.ConditionTrue
	})
}

// checkpoint has the pod checkpointed, and returns the name of its PodSnapshot once that can be restored.
func (t *trial) checkpoint(ctx context.Context) (string, error) {
	trigger := t.trigger()
	if err := t.Client.Create(ctx, trigger); err != nil {
		return "", err
	}
	var done *metav1.Condition
	err := t.await(ctx, trigger, "is not taken", func() bool {
		done = meta.FindStatusCondition(trigger.Status.Conditions, podsnapshotv1.ConditionTriggered)
		return done != nil && done.Status != metav1.ConditionUnknown
	})
	if err != nil {
		return "", err
	}
	if done.Status != metav1.ConditionTrue || trigger.Status.SnapshotCreated == nil {
		return "", errors.New(done.Message)
	}
	s := &podsnapshotv1.PodSnapshot{ObjectMeta: t.meta()}
	s.Name = trigger.Status.SnapshotCreated.Name
	return s.Name, t.await(ctx, s, "is not Ready", func() bool {
		c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionTrue
	})
}

// turn asks for a sleep or a wake by its annotation, and waits for the condition Asleep.
func (t *trial) turn(ctx context.Context, annotation string, want corev1.ConditionStatus) error {
	p := t.object()
	if err := t.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	before := p.DeepCopy()
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, annotation, "trial")
	if err := t.Client.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return err
	}
	what := fmt.Sprintf("has not got the condition %s %s", podsnapshotv1.ConditionAsleep, want)
	return t.await(ctx, p, what, func() bool {
		return podCondition(p, podsnapshotv1.ConditionAsleep).Status == want
	})
}

// await reads an object again and again until done. Its error says what is wrong after what.
func (t *trial) await(ctx context.Context, o client.Object, what string, done func() bool) error {
	key := client.ObjectKeyFromObject(o)
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		err := t.Client.Get(ctx, key, o)
		return err == nil && done(), err
	})
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w%s", key.Name, what, ctx.Err(), answer(o))
	}
	return err
}

// answer is what the agent has last said of a pod, for an error.
func answer(o client.Object) string {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; phase %s, %s %q", p.Status.Phase, podsnapshotv1.AnnotationSleepStatus,
		p.Annotations[podsnapshotv1.AnnotationSleepStatus])
}

// remove deletes an object, if it is there, and waits until it is gone.
func (t *trial) remove(ctx context.Context, o client.Object) error {
	key := client.ObjectKeyFromObject(o)
	if err := t.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		err := t.Client.Get(ctx, key, o)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("remove %T %s: %w", o, key.Name, err)
	}
	return nil
}

// clear removes the pod, its trigger, its PodSnapshots and its policy.
func (t *trial) clear(ctx context.Context) error {
	var l podsnapshotv1.PodSnapshotList
	for _, o := range []client.Object{t.object(), t.trigger()} {
		if err := t.remove(ctx, o); err != nil {
			return fmt.Errorf("trial: %w", err)
		}
	}
	if err := t.Client.List(ctx, &l, client.InNamespace(t.Namespace)); err != nil {
		return fmt.Errorf("trial: list PodSnapshots: %w", err)
	}
	for i := range l.Items {
		s := &l.Items[i]
		if s.Annotations[podsnapshotv1.AnnotationOriginPod] != Name {
			continue
		}
		if err := t.remove(ctx, s); err != nil {
			return fmt.Errorf("trial: %w", err)
		}
	}
	if err := t.remove(ctx, t.policy()); err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	return nil
}

func (t *trial) say(format string, args ...any) { fmt.Fprintf(t.Out, format+"\n", args...) }
