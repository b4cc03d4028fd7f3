package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/workload/answers"
)

// stepTime bounds one step of a lane: what has not come about by then is a failure of the run.
const stepTime = 4 * time.Minute

// kind is what the pods of a lane go through.
type kind struct {
	name        string // of its policy
	post        string // what becomes of a pod after a checkpoint: resume or stop
	keeps       int    // how many snapshots of a group the policy keeps
	annotations string // further ones of the policy
	step        func(*lane, context.Context) error
}

var (
	resumes = kind{"resume", "resume", 3, "", (*lane).use}
	stops   = kind{"stop", "stop", 3, "", (*lane).use}
	sleeps  = kind{"sleep", "resume", 3, "", napping((*lane).request)}
	idles   = kind{"idle", "resume", 3, "", napping((*lane).idle)}
	golden  = kind{"golden", "resume", 1, "", (*lane).useGolden}
	heirs   = kind{"heir", "resume", 3, ", diapause.dev/on-termination: checkpoint", (*lane).bequeath}
)

// kinds are the kinds of the lanes that live through the chaos side by side.
var kinds = []kind{resumes, stops, resumes, stops, sleeps, idles, idles, golden, heirs}

// lane is one sandbox in the chaos: pods of one name, one after the other, each of which goes on
// where a snapshot of an earlier one was taken. It is used by one goroutine.
type lane struct {
	*chaos
	kind
	rng   *rand.Rand
	name  string
	group string // hashed, the label by which the policy makes groups

	pod      *ready // nil: there is none
	anew     bool   // its sandbox was killed while it loaded, and the kubelet has made another
	slept    int64  // the counter before the pod last fell asleep, or might have
	sidecars int64  // how many had been killed by then
	killed   int64  // how many had been killed before the pod was made
	lives    int    // how many lives were lost
	asked    int    // triggers and requests
	boot     string // the life that all its pods have; empty until a snapshot of it was Complete
	saved    []saved
	doubtful map[string]bool // triggers that failed since the newest was Complete
}

// saved is a snapshot whose trigger was Complete.
type saved struct {
	name string
	from int64 // the counter before the trigger was made
}

func newLane(c *chaos, i int, k kind, rng *rand.Rand) *lane {
	name := fmt.Sprintf("%s-%d", k.name, i)
	return &lane{chaos: c, kind: k, rng: rng, name: name, group: name, doubtful: make(map[string]bool)}
}

// live goes through the chaos until it is over, and then looks at all that is left.
func (l *lane) live(ctx context.Context) error {
	for l.over.Err() == nil {
		if err := l.advance(ctx); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	if err := l.takeStock(ctx); err != nil {
		return fmt.Errorf("%s, when the chaos was over: %w", l.name, err)
	}
	return nil
}

// advance does one thing that users do.
func (l *lane) advance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	switch {
	case l.pod == nil:
		return l.begin(ctx, "")
	case l.anew:
		return l.isReady(ctx, "")
	}
	return l.step(l, ctx)
}

// use checkpoints the pod, ends it or deletes a snapshot.
func (l *lane) use(ctx context.Context) error {
	switch n := l.rng.IntN(10); {
	case n < 6:
		return l.freeze(ctx)
	case n < 9:
		return l.end(ctx)
	default:
		return l.forget(ctx)
	}
}

// takeStock restores every snapshot that is Ready and ends.
func (l *lane) takeStock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	if l.pod != nil {
		if err := errors.Join(l.alive(ctx), l.end(ctx)); err != nil {
			return err
		}
	}
	all, err := l.kept(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := errors.Join(l.begin(ctx, s.Name), l.end(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) newest() saved { return l.saved[len(l.saved)-1] }

// begin has a pod run, from the named snapshot or from the newest.
func (l *lane) begin(ctx context.Context, snapshot string) error {
	nodes := l.Nodes()
	p := l.world.pod(l.name)
	// Not by the scheduler: if the API server is killed while it places a pod, it may leave the pod alone for five
	// minutes (podMaxInUnschedulablePodsDuration in pkg/scheduler).
	p.Spec.NodeName = nodes[l.rng.IntN(len(nodes))].Name
	p.Labels["app"], p.Labels["kind"], p.Labels[hashLabel] = "chaos", l.kind.name, nameHash(l.group)
	if l.post == "stop" {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if snapshot != "" {
		from(snapshot)(p)
	}
	l.killed = l.count.sidecars.Load()
	if err := l.create(ctx, p); err != nil {
		return err
	}
	l.pod, l.slept = &ready{Pod: p}, 0
	return l.isReady(ctx, snapshot)
}

// lost ends a pod that has run, has lost its sandbox because a sidecar was killed while it loaded, and has started
// anew. Another life begins, with a group of its own.
func (l *lane) lost(ctx context.Context) error {
	l.Logf("%s: the pod has lost its sandbox: %+v", l.name, condition(l.pod.Pod, podsnapshotv1.ConditionPodRestored))
	l.lives++
	l.group = fmt.Sprintf("%s-%d", l.name, l.lives)
	l.boot, l.saved, l.slept, l.doubtful = "", nil, 0, make(map[string]bool)
	return l.end(ctx)
}

// isReady waits until the pod is Ready, and returns an error unless it is restored from the named snapshot,
// or the newest.
func (l *lane) isReady(ctx context.Context, snapshot string) error {
	p, out := l.pod.Pod, new(corev1.Pod)
	l.anew = false
	err := l.until(ctx, "pod Ready", func() error {
		if err := l.client.Get(ctx, client.ObjectKeyFromObject(p), out); err != nil {
			return err
		}
		if condition(out, corev1.PodReady).Status == corev1.ConditionTrue || ended(out) {
			return nil
		}
		return fmt.Errorf("it is %s, %+v", out.Status.Phase, condition(out, podsnapshotv1.ConditionPodRestored))
	})
	if err != nil {
		return err
	}
	l.pod = &ready{Pod: out}
	if ended(out) { // a sidecar was killed while it loaded
		l.Logf("%s: the pod ended before it was Ready: %s", l.name, out.Status.Message)
		return l.end(ctx)
	}
	return l.rightLife(ctx, snapshot)
}

// create creates an object, whether or not the API server is there.
func (l *lane) create(ctx context.Context, o client.Object) error {
	return l.until(ctx, "creation of "+o.GetName(), func() error {
		if err := l.client.Create(ctx, o); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// until repeats f until it returns nil.
func (l *lane) until(ctx context.Context, what string, f func() error) error {
	const every = 100 * time.Millisecond
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(every):
		}
	}
}

// rightLife returns an error unless the pod goes on with what it should: the named snapshot, or one
// that is no older than the newest that was Complete.
func (l *lane) rightLife(ctx context.Context, named string) error {
	now, err := l.state(ctx)
	if errors.Is(err, errEnded) {
		return l.end(ctx)
	}
	if err != nil {
		return err
	}
	l.excuse()
	if now.Boot != l.boot {
		l.count.started.Add(1)
		if (len(l.saved) > 0 || l.slept > 0) && l.count.sidecars.Load() > l.killed {
			return l.lost(ctx)
		}
		if len(l.saved) > 0 || l.slept > 0 {
			return fmt.Errorf("snapshots %+v were Complete, the pod slept at %d; the life is %s, want %s: %+v", l.saved, l.slept,
				now.Boot, l.boot, condition(l.pod.Pod, podsnapshotv1.ConditionPodRestored))
		}
		l.boot = now.Boot
		return nil
	}
	if now.Counter < l.slept {
		return fmt.Errorf("the pod is at %d, and slept at %d", now.Counter, l.slept)
	}
	l.count.restored.Add(1)
	name, err := l.origin(ctx)
	if errors.Is(err, errEnded) {
		return l.end(ctx)
	}
	if err != nil {
		return err
	}
	if named != "" && name != named {
		return fmt.Errorf("restored from %s, want %s", name, named)
	}
	return errors.Join(l.rightAge(ctx, name, named, now.Counter), l.rightBytes(ctx))
}

// origin returns the name of the snapshot that the pod's condition names. It may come to be after the pod is Ready, if
// the API server or the agent was away.
func (l *lane) origin(ctx context.Context) (name string, err error) {
	err = l.untilEnded(ctx, "condition of a restored pod", func() error {
		if err := l.client.Get(ctx, client.ObjectKeyFromObject(l.pod.Pod), l.pod.Pod); err != nil {
			return err
		}
		c := condition(l.pod.Pod, podsnapshotv1.ConditionPodRestored)
		if c.Status != corev1.ConditionTrue {
			return fmt.Errorf("it is %+v", c)
		}
		name = c.Message[strings.LastIndex(c.Message, "/")+1:]
		return nil
	})
	return name, err
}

// rightAge returns an error if the pod was restored from an older snapshot than it should, or is
// younger than the snapshot says.
func (l *lane) rightAge(ctx context.Context, name, named string, counter int64) error {
	i := slices.IndexFunc(l.saved, func(s saved) bool { return s.name == name })
	switch {
	case i >= 0 && counter < l.saved[i].from:
		return fmt.Errorf("restored from %s: the counter is %d, and was %d when it was asked for", name, counter,
			l.saved[i].from)
	case i >= 0 && named == "" && i < len(l.saved)-1:
		return fmt.Errorf("restored from %s, though %s is newer and was Complete", name, l.newest().name)
	case i >= 0 || named != "" || len(l.saved) == 0:
		return nil
	}
	var s podsnapshotv1.PodSnapshot
	if err := l.until(ctx, "the snapshot "+name, func() error {
		return client.IgnoreNotFound(l.client.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: name}, &s))
	}); err != nil {
		return err
	}
	if rules.OfSleep(&s) && s.Annotations[podsnapshotv1.AnnotationOriginPodUID] == string(l.pod.UID) {
		return nil // of its own
	}
	if trigger := s.Annotations[podsnapshotv1.AnnotationTrigger]; !l.doubtful[trigger] || counter < l.newest().from {
		return fmt.Errorf("restored from %s of trigger %q, which is not newer than %s", name, trigger, l.newest().name)
	}
	return nil
}

// rightBytes returns an error unless the pod's memory is as its workload has filled it.
func (l *lane) rightBytes(ctx context.Context) error {
	var v answers.Memory
	err := l.untilEnded(ctx, "check of memory", func() error { return l.ask(l.pod, "/verify", &v) })
	if errors.Is(err, errEnded) {
		return l.end(ctx)
	}
	if err != nil {
		return err
	}
	if !v.OK || v.Pages == 0 {
		return fmt.Errorf("memory is wrong: %+v", v)
	}
	return nil
}

// errEnded is returned where a pod should answer that has ended by itself.
var errEnded = errors.New("the pod has ended")

// untilEnded repeats f until it returns nil, or the pod has ended: then it returns errEnded.
func (l *lane) untilEnded(ctx context.Context, what string, f func() error) error {
	over := false
	err := l.until(ctx, what, func() error {
		err := f()
		if err == nil {
			return nil
		}
		p := new(corev1.Pod)
		if getErr := l.client.Get(ctx, client.ObjectKeyFromObject(l.pod.Pod), p); getErr != nil {
			return errors.Join(err, getErr)
		}
		if over = ended(p); over {
			return nil
		}
		l.anew = l.anew || p.Status.PodIP != l.pod.Status.PodIP
		l.pod = &ready{Pod: p}
		return err
	})
	if over {
		err = errEnded
	}
	return err
}

// state is what the pod's workload says of itself.
func (l *lane) state(ctx context.Context) (s answers.State, err error) {
	err = l.untilEnded(ctx, "answer of the pod", func() error { return l.ask(l.pod, "/state", &s) })
	return s, err
}

// alive returns an error if the pod does not run, unless it has ended.
func (l *lane) alive(ctx context.Context) error {
	var first answers.State
	err := l.untilEnded(ctx, "the pod runs on", func() error {
		var now answers.State
		if err := l.ask(l.pod, "/state", &now); err != nil {
			return err
		}
		if first.Boot == "" {
			first = now
		}
		if now.Counter < first.Counter || l.anew && now.Boot != first.Boot {
			first = now // of a sandbox made anew
		}
		if now.Boot != first.Boot || now.Counter == first.Counter {
			return fmt.Errorf("it is at %d of %s, and was at %d of %s", now.Counter, now.Boot, first.Counter, first.Boot)
		}
		return nil
	})
	if errors.Is(err, errEnded) {
		l.Logf("%s: %v", l.name, err)
		return l.end(ctx)
	}
	return err
}

// ended reports whether nothing of a pod runs, nor will again.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// freeze has the pod checkpointed. Whatever comes of it, the pod runs on, or has ended.
func (l *lane) freeze(ctx context.Context) error {
	before, err := l.state(ctx)
	if errors.Is(err, errEnded) {
		return l.end(ctx)
	}
	if err != nil {
		return err
	}
	l.asked++
	t := &podsnapshotv1.PodSnapshotManualTrigger{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: fmt.Sprintf("%s-%d", l.name, l.asked)},
		Spec:       podsnapshotv1.PodSnapshotManualTriggerSpec{TargetPod: l.name},
	}
	if err := l.create(ctx, t); err != nil {
		return err
	}
	name, failure, err := l.answer(ctx, t)
	if err != nil {
		return err
	}
	if name == "" {
		l.count.failed.Add(1)
		l.doubtful[t.Name] = true
		l.Logf("%s: %s failed: %.200s", l.name, t.Name, failure)
		return l.alive(ctx)
	}
	l.count.complete.Add(1)
	l.saved = append(l.saved, saved{name, before.Counter})
	clear(l.doubtful)
	if l.post == "stop" {
		l.count.stopped.Add(1)
		return l.stopped(ctx, t.Name)
	}
	return l.alive(ctx)
}

// answer waits for the answer to a trigger: the snapshot, or why there is none.
func (l *lane) answer(ctx context.Context,
	t *podsnapshotv1.PodSnapshotManualTrigger,
) (name, failure string, err error) {
	err = l.until(ctx, "answer to "+t.Name, func() error {
		if err := l.client.Get(ctx, client.ObjectKeyFromObject(t), t); err != nil {
			return err
		}
		c := meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered)
		switch {
		case c == nil || c.Status == metav1.ConditionUnknown:
			return fmt.Errorf("%w: %+v", errNotYet, c)
		case c.Status == metav1.ConditionTrue:
			name = t.Status.SnapshotCreated.Name
		}
		failure = c.Message
		return nil
	})
	return name, failure, err
}

// stopped waits until the pod has ended, which its policy asks for, and removes it.
func (l *lane) stopped(ctx context.Context, trigger string) error {
	p := new(corev1.Pod)
	err := l.until(ctx, "end of the pod after "+trigger, func() error {
		if err := l.client.Get(ctx, client.ObjectKeyFromObject(l.pod.Pod), p); err != nil || ended(p) {
			return err
		}
		return fmt.Errorf("it is %s", p.Status.Phase)
	})
	return errors.Join(err, l.end(ctx))
}

// end deletes the pod and waits until it is gone.
func (l *lane) end(ctx context.Context, how ...client.DeleteOption) error {
	if l.pod == nil {
		return nil
	}
	l.count.removed.Add(1)
	p := l.pod.Pod
	l.pod = nil
	return l.until(ctx, "deletion of the pod", func() error {
		err := l.client.Delete(ctx, p, how...)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errNotYet, err)
	})
}

// forget deletes a snapshot, not the newest.
func (l *lane) forget(ctx context.Context) error {
	if len(l.saved) < 2 {
		return nil
	}
	s := &podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.namespace,
		Name:      l.saved[len(l.saved)-2].name,
	}}
	l.count.discarded.Add(1)
	return l.until(ctx, "deletion of snapshot "+s.Name, func() error {
		err := l.client.Delete(ctx, s)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errNotYet, err)
	})
}

// kept returns the lane's snapshots that can be restored, once retention has deleted all others. The newest that was
// Complete is among them. A controller that was killed may be behind.
func (l *lane) kept(ctx context.Context) (all []podsnapshotv1.PodSnapshot, err error) {
	err = l.until(ctx, "retention", func() error {
		all, err = l.ready(ctx)
		switch {
		case err != nil:
			return err
		case len(all) > l.keeps:
			return fmt.Errorf("%d snapshots of %s are Ready, the policy keeps %d", len(all), l.name, l.keeps)
		case len(l.saved) > 0 && !slices.ContainsFunc(all,
			func(s podsnapshotv1.PodSnapshot) bool { return s.Name == l.newest().name }):
			return fmt.Errorf("snapshot %s was Complete, and is not Ready", l.newest().name)
		}
		return nil
	})
	return all, err
}

// ready returns the lane's snapshots that can be restored.
func (l *lane) ready(ctx context.Context) (all []podsnapshotv1.PodSnapshot, err error) {
	var list podsnapshotv1.PodSnapshotList
	err = l.until(ctx, "list of snapshots", func() error {
		return l.client.List(ctx, &list, client.InNamespace(l.namespace), client.MatchingLabels{hashLabel: nameHash(l.group)})
	})
	for _, s := range list.Items {
		if s.DeletionTimestamp == nil && meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionReady) {
			all = append(all, s)
		}
	}
	return all, err
}
