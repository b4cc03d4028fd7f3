package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// errFailed is the kind of error of a trigger that was answered with a failure.
var errFailed = errors.New("the trigger failed")

// trigger makes a trigger for a pod.
func (w *world) trigger(name, pod string) *podsnapshotv1.PodSnapshotManualTrigger {
	w.Helper()
	t := &podsnapshotv1.PodSnapshotManualTrigger{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       podsnapshotv1.PodSnapshotManualTriggerSpec{TargetPod: pod},
	}
	w.must(w.client.Create(w.ctx, t))
	return t
}

// outcome waits for a trigger's answer and returns the name of the snapshot. It calls taken when an
// agent has taken the trigger, if that is to be seen.
func (w *world) outcome(ctx context.Context, t *podsnapshotv1.PodSnapshotManualTrigger, taken func()) (string, error) {
	var name string
	err := w.follow(ctx, new(podsnapshotv1.PodSnapshotManualTriggerList), t, func(o client.Object) error {
		s := o.(*podsnapshotv1.PodSnapshotManualTrigger).Status
		c := meta.FindStatusCondition(s.Conditions, podsnapshotv1.ConditionTriggered)
		switch {
		case c != nil && c.Status == metav1.ConditionUnknown:
			taken()
			return errNotYet
		case c == nil:
			return errNotYet
		case c.Status == metav1.ConditionTrue && c.Reason == podsnapshotv1.ReasonComplete && s.SnapshotCreated != nil:
			name = s.SnapshotCreated.Name
			return nil
		}
		return fmt.Errorf("%w: %s: %s", errFailed, c.Reason, c.Message)
	})
	return name, err
}

// snapshotted is a snapshot that a trigger made.
type snapshotted struct {
	name   string
	took   time.Duration // from the trigger's creation until it was Complete
	stages []stage       // on the way
}

// checkpoint checkpoints a pod by a trigger. The snapshot is Ready by the time it returns.
func (w *world) checkpoint(p *ready) snapshotted {
	w.Helper()
	began := time.Now()
	t := w.trigger(fmt.Sprintf("%s-%d", p.Name, began.UnixNano()), p.Name)
	var stages []stage
	name, err := w.outcome(w.ctx, t,
		func() { stages = append(stages, stage{"until an agent has taken it", time.Since(began)}) })
	took := time.Since(began)
	w.must(err)
	s := w.snapshot(name)
	if !meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionReady) {
		w.Errorf("the trigger was Complete before its PodSnapshot was Ready: %v", s.Status.Conditions)
	}
	return snapshotted{name, took, stages}
}

// snapshot reads a PodSnapshot.
func (w *world) snapshot(name string) *podsnapshotv1.PodSnapshot {
	w.Helper()
	s := new(podsnapshotv1.PodSnapshot)
	w.must(w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, s))
	return s
}

// snapshots reads all PodSnapshots of the namespace.
func (w *world) snapshots() []podsnapshotv1.PodSnapshot {
	w.Helper()
	var l podsnapshotv1.PodSnapshotList
	w.must(w.client.List(w.ctx, &l, client.InNamespace(w.namespace)))
	return l.Items
}

// replicated waits until a snapshot is in the object store.
func (w *world) replicated(name string) {
	w.Helper()
	w.eventually("replication of "+name, func() error {
		s := new(podsnapshotv1.PodSnapshot)
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, s)
		if err == nil && !meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated) {
			err = fmt.Errorf("it is at %v", s.Status.Conditions)
		}
		return err
	})
}

// exec runs a command in a container of a pod, the first if its name is empty, and returns what it
// prints. It repeats what fails, as it may while a node has much to do.
func (w *world) exec(pod, container string, args ...string) (out string) {
	w.Helper()
	all := []string{"--namespace=" + w.namespace, "exec", pod}
	if container != "" {
		all = append(all, "--container="+container)
	}
	w.eventually(strings.Join(args, " ")+" in "+pod, func() (err error) {
		out, err = w.Kubectl(w.ctx, append(append(all, "--"), args...)...)
		return err
	})
	return out
}

// write writes a file in a pod.
func (w *world) write(pod, path, content string) {
	w.Helper()
	w.exec(pod, "", "sh", "-c", "echo -n "+content+" > "+path)
}

// reads fails unless a file in a pod has that content.
func (w *world) reads(pod, path, want string) {
	w.Helper()
	if got := w.exec(pod, "", "sh", "-c", "cat "+path+" || true"); got != want {
		w.Errorf("%s in pod %s is %q, want %q", path, pod, got, want)
	}
}

// discard deletes a snapshot and returns when it is gone.
func (w *world) discard(name string) {
	w.Helper()
	s := &podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	w.must(w.client.Delete(w.ctx, s))
	w.awaitGone(s)
}

// outlast returns when a snapshot that is created now is of a later second.
func (w *world) outlast(s snapshotted) {
	w.Helper()
	created := w.snapshot(s.name).CreationTimestamp.Time
	w.eventually("the next second", func() error {
		if !time.Now().Truncate(time.Second).After(created) {
			return errNotYet
		}
		return nil
	})
}
