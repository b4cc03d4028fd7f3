package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

// hashLabel tells the sandboxes of Agent Sandbox apart.
const hashLabel = "agents.x-k8s.io/sandbox-name-hash"

// usualMiB is how much memory a workload fills unless a test wants more.
const usualMiB = 16

func nameHash(sandbox string) string {
	h := fnv.New32a()
	h.Write([]byte(sandbox))
	return fmt.Sprintf("%08x", h.Sum32())
}

// pod is a pod of the namespace with a workload, as Agent Sandbox makes one for the sandbox of its
// name.
func (w *world) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	class, grace := bed.Diapause, int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: name, Annotations: map[string]string{},
			Labels: map[string]string{"app": "workload", hashLabel: nameHash(name)},
		},
		Spec: corev1.PodSpec{
			RuntimeClassName: &class, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", fmt.Sprintf("--mib=%d", usualMiB)},
			}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// on has a pod run on a node.
func on(n *bed.Node) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Name} }
}

// from has a pod restored from the snapshot of that name.
func from(snapshot string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[podsnapshotv1.AnnotationSnapshotName] = snapshot }
}

// command has a pod's first container run another command.
func command(args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command = args }
}

// ready is a pod that has become Ready, as it was at that moment.
type ready struct {
	*corev1.Pod
	took   time.Duration // from its creation until it was Ready
	stages []stage       // on the way
}

// run creates a pod and returns it when it is Ready.
func (w *world) run(p *corev1.Pod) *ready {
	w.Helper()
	r, err := w.tryRun(w.ctx, p)
	w.must(err)
	return r
}

func (w *world) tryRun(ctx context.Context, p *corev1.Pod) (*ready, error) {
	began := time.Now()
	if err := w.client.Create(ctx, p); err != nil {
		return nil, err
	}
	var (
		out    *corev1.Pod
		stages []stage
	)
	err := w.follow(ctx, new(corev1.PodList), p, func(o client.Object) error {
		out = o.(*corev1.Pod)
		stages = reached(stages, out, time.Since(began))
		if out.Status.Phase == corev1.PodFailed || out.Status.Phase == corev1.PodSucceeded {
			return fmt.Errorf("pod %s has ended: %s", p.Name, out.Status.Phase)
		}
		if condition(out, corev1.PodReady).Status != corev1.ConditionTrue {
			return errNotYet
		}
		return nil
	})
	return &ready{out, time.Since(began), stages}, err
}

// starting is a pod that is created by a goroutine, and how that ended.
type starting <-chan struct {
	*ready
	error
}

// start creates a pod; finish returns it when it is Ready.
func (w *world) start(p *corev1.Pod) starting {
	done := make(chan struct {
		*ready
		error
	}, 1)
	go func() {
		r, err := w.tryRun(w.ctx, p)
		done <- struct {
			*ready
			error
		}{r, err}
	}()
	return done
}

func (w *world) finish(s starting) *ready {
	w.Helper()
	r := <-s
	w.must(r.error)
	return r.ready
}

// errNotYet is returned of an object that is not yet as it shall be.
var errNotYet = errors.New("not yet as it shall be")

// follow calls f with every state of an object from o on, until f does not return errNotYet.
func (w *world) follow(ctx context.Context, list client.ObjectList, o client.Object,
	f func(client.Object) error,
) error {
	only := &client.ListOptions{Namespace: o.GetNamespace(), Raw: &metav1.ListOptions{
		FieldSelector: "metadata.name=" + o.GetName(), ResourceVersion: o.GetResourceVersion(),
	}}
	watching, err := w.client.Watch(ctx, list, only)
	if err != nil {
		return err
	}
	defer watching.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", o.GetName(), context.Cause(ctx))
		case e, ok := <-watching.ResultChan():
			switch {
			case !ok:
				return fmt.Errorf("the watch of %s ended", o.GetName())
			case e.Type == watch.Error:
				return fmt.Errorf("watch %s: %w", o.GetName(), apierrors.FromObject(e.Object))
			case e.Type == watch.Deleted:
				return fmt.Errorf("%s was deleted", o.GetName())
			}
			if err := f(e.Object.(client.Object)); !errors.Is(err, errNotYet) {
				return err
			}
		}
	}
}

func condition(p *corev1.Pod, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.PodCondition{}
}

// remove deletes a pod and returns when it is gone.
func (w *world) remove(name string) {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	w.must(w.client.Delete(w.ctx, p))
	w.awaitGone(p)
}

func (w *world) awaitGone(o client.Object) {
	w.Helper()
	w.eventually("deletion of "+o.GetName(), func() error {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", err)
	})
}

// life asks a pod's workload what its memory says of it.
func (w *world) life(p *ready) (l answers.State) {
	w.Helper()
	w.eventually(p.Name+" answers", func() error { return w.ask(p, "/state", &l) })
	return l
}

// ask gets what a pod's workload answers.
func (w *world) ask(p *ready, path string, out any) error {
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	b, err := bed.Fetch(ctx, "http://"+p.Status.PodIP+":8080"+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// whole fails unless a pod's process is the one of an earlier life, and its memory is sound.
func (w *world) whole(p *ready, before answers.State) {
	w.Helper()
	now := w.life(p)
	if now.Boot != before.Boot || now.Counter < before.Counter {
		w.Errorf("pod %s is at %d of life %s, want %d or later of %s: %v", p.Name, now.Counter, now.Boot, before.Counter,
			before.Boot,
			condition(p.Pod, podsnapshotv1.ConditionPodRestored))
	}
	w.sound(p)
}

// sound fails unless a pod's memory is as its workload has filled it.
func (w *world) sound(p *ready) {
	w.Helper()
	var v answers.Memory
	if err := w.ask(p, "/verify", &v); err != nil || !v.OK || v.Pages == 0 {
		w.Errorf("memory of pod %s: %+v, %v", p.Name, v, err)
	}
}

// restored fails unless a pod goes on with an earlier life, and said so by the time it was Ready, in
// the way that the SDK understands.
func (w *world) restored(p *ready, snapshot string, before answers.State) {
	w.Helper()
	c := condition(p.Pod, podsnapshotv1.ConditionPodRestored)
	if c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, snapshot) {
		w.Errorf("pod %s was Ready with PodRestored %q %q %q, want True from %s", p.Name, c.Status, c.Reason, c.Message,
			snapshot)
	}
	w.whole(p, before)
}

// cold fails unless a pod began a life of its own, and says why in a condition.
func (w *world) cold(p *ready, before answers.State, why string) {
	w.Helper()
	c := condition(p.Pod, podsnapshotv1.ConditionPodRestored)
	if c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, why) {
		w.Errorf("pod %s was Ready with PodRestored %q %q %q, want False because of %q", p.Name, c.Status, c.Reason,
			c.Message, why)
	}
	if now := w.life(p); now.Boot == before.Boot {
		w.Errorf("pod %s was restored", p.Name)
	}
	w.sound(p)
}

// asked waits until the kubelet works on a pod: by then the agent has been asked, or is about to be,
// from what the pod shall be restored.
func (w *world) asked(name string) {
	w.Helper()
	w.eventually(name+" is on a node", func() error {
		p := new(corev1.Pod)
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, p)
		if err == nil && p.Status.StartTime == nil {
			err = errNotYet
		}
		return err
	})
}
