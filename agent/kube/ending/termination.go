package ending

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// A pod whose policy says so is saved when it is deleted: the shim of its first container that is told to end asks
// whether it may, and is told to wait while the pod is saved and its sandbox ended. Who only restarts one container of
// the pod asks, too, and is told that it may end.

const (
	// forgetTime is how long the outcome of a termination is kept for containers that have not asked yet.
	forgetTime = time.Hour
	// lookTime is how long it may take to find a pod, and to find out whether its namespace ends.
	lookTime = 2 * time.Second
	// startTime is how long after the agent's start pods wait until it has heard from the API server.
	startTime = 10 * time.Second
)

// errGrace means that the time for a save is over.
var errGrace = errors.New("the rest of the pod's grace period was not enough to save it")

// errUnsure means that nobody could tell whether a pod is being deleted and is to be saved.
var errUnsure = errors.New("the API server did not say whether the pod is deleted and to be saved")

// terminations are the pods that are being ended. Its methods may be called concurrently.
type terminations struct {
	mu     sync.Mutex
	all    map[string]*termination // by the pod's UID
	closed bool                    // no termination begins any more
}

// termination is what becomes of one pod.
type termination struct {
	begun time.Time
	over  chan struct{} // closed when the pod's containers may end
	saved bool          // and the pod was saved; set before over is closed
	until time.Time     // over is closed then at the latest, or soon after; guarded by terminations.mu
}

func newTerminations() *terminations { return &terminations{all: make(map[string]*termination)} }

// of returns a pod's termination. If there is none, it begins one, which do carries out. It returns nil if none may
// begin.
func (ts *terminations) of(uid string, do func(*termination)) *termination {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.all[uid]; t != nil || ts.closed {
		return t
	}
	for k, t := range ts.all {
		if time.Since(t.begun) > forgetTime {
			delete(ts.all, k)
		}
	}
	t := &termination{begun: time.Now(), over: make(chan struct{}), until: time.Now().Add(lookTime)}
	ts.all[uid] = t
	do(t)
	return t
}

// extend says until when a termination lasts.
func (ts *terminations) extend(t *termination, until time.Time) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.until = until
}

func (ts *terminations) left(t *termination) time.Duration {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return time.Until(t.until)
}

// forget lets the pod's next question begin anew.
func (ts *terminations) forget(uid string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.all, uid)
}

// close keeps terminations from beginning.
func (ts *terminations) close() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.closed = true
}

// Config is what Endings work with.
type Config struct {
	Objects *objects.Objects
	// Asleep returns the mark of the pod with that UID. Ok is false if it does not sleep.
	Asleep func(podUID string) (m sleep.Mark, ok bool)
	// Plan returns the plan by which a pod that ends is saved, or a refusal.
	Plan func(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error)
	// Capture carries a job out. All of it ends with ctx.
	Capture func(ctx context.Context, j *record.Job) error
	Sleeps  *Sleeps
	Work    *control.Background
	Logger  *slog.Logger
}

// Endings save the pods that are told to end, if they are to be saved. Its methods may be called concurrently.
type Endings struct {
	Config
	log          *slog.Logger
	began        time.Time // when the agent has started
	terminations *terminations
}

// New returns the endings of a node whose agent starts now.
func New(c Config) *Endings {
	return &Endings{Config: c, log: c.Logger, began: time.Now(), terminations: newTerminations()}
}

// Close keeps saves from beginning.
func (e *Endings) Close() { e.terminations.close() }

// MayEnd returns how long a container that is told to end has to wait, and whether its pod was saved: see
// local.Cluster.MayEnd.
func (e *Endings) MayEnd(ctx context.Context, ref snapshot.PodRef) (wait time.Duration, saved bool) {
	select {
	case <-e.Objects.Synced:
	case <-ctx.Done(): // nobody can tell
		return max(time.Until(e.began.Add(startTime)), 0), false
	}
	t := e.terminations.of(ref.UID, func(t *termination) {
		e.Work.Go(func() { e.terminate(t, ref) })
	})
	if t == nil {
		return 0, false
	}
	select {
	case <-t.over:
		return 0, t.saved
	case <-ctx.Done():
		return max(e.terminations.left(t), 0), false
	}
}

// terminate saves a pod that is told to end, if it is to be saved.
func (e *Endings) terminate(t *termination, ref snapshot.PodRef) {
	defer close(t.over)
	pod, err := e.ending(t, ref)
	if errors.Is(err, errUnsure) {
		e.log.Warn("a container ends, and its pod is not saved", "pod", ref.String(), "error", err)
		e.Objects.Events.Pod(ref, snapshot.Key{}, notice.ContainerEnds, err)
		pod, err = nil, nil
	}
	if err == nil && pod == nil {
		e.terminations.forget(ref.UID)
		return
	}
	if err == nil {
		err = e.save(t, pod)
	}
	t.saved = err == nil
	if err != nil {
		e.log.Warn("a pod ends without having been saved", "pod", ref.String(), "error", err)
		e.Objects.Events.Pod(ref, snapshot.Key{}, notice.EndsUnsaved, err)
	}
}

// ending returns a pod that is being deleted and is to be saved before. It returns nil if the pod is not to be saved.
// If the API server does not say so in time, the error is of kind errUnsure.
func (e *Endings) ending(t *termination, ref snapshot.PodRef) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(e.Work.Life, lookTime)
	defer cancel()
	pod, err := e.Objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return nil, err
	}
	policies, _, err := e.Objects.Rules(ctx, pod.Namespace, e.Objects.List)
	if err != nil {
		return nil, err
	}
	patience := objects.FreshTime
	if len(policies) > 0 {
		patience = rules.TimeToAsk(pod)
	}
	e.terminations.extend(t, time.Now().Add(patience+lookTime))
	pod, err = e.endingBy(pod, policies, patience)
	switch {
	case err != nil && len(policies) == 0: // few pods are saved at their end; the others do not wait for longer
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w within %v: %w", errUnsure, patience, err)
	case pod == nil || e.Objects.IDs.NamespaceEnds(e.Work.Life, pod.Namespace): // no successor, nor a PodSnapshot
		return nil, nil
	}
	return pod, nil
}

// endingBy is ending by the API server's word, as far as the caches cannot say: the kubelet may have heard of a
// deletion before they have, and a policy may be newer. Cached are the policies of the pod's namespace.
func (e *Endings) endingBy(pod *corev1.Pod, cached []podsnapshotv1.PodSnapshotPolicy,
	patience time.Duration,
) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(e.Work.Life, patience)
	defer cancel()
	uid := pod.UID
	pod, err := e.Objects.Ending(ctx, pod)
	if err != nil || pod == nil || pod.UID != uid || pod.DeletionTimestamp == nil ||
		pod.Status.Phase != corev1.PodRunning {
		return nil, err
	}
	if rules.SavedOnTermination(pod, cached) {
		return pod, nil
	}
	var now podsnapshotv1.PodSnapshotPolicyList
	err = objects.Patiently(ctx, func(ctx context.Context) error {
		return e.Objects.Live.List(ctx, &now, client.InNamespace(pod.Namespace))
	})
	if err != nil || !rules.SavedOnTermination(pod, now.Items) {
		return nil, err
	}
	return pod, nil
}

// save saves a pod and ends its sandbox, while there is time. After an error the pod runs on.
func (e *Endings) save(t *termination, pod *corev1.Pod) error {
	now, err := e.Objects.Clock.Now()
	if err != nil {
		now = time.Now()
	}
	left, err := rules.TimeToSave(pod, now)
	if err != nil {
		return err
	}
	e.terminations.extend(t, time.Now().Add(left))
	ctx, cancel := context.WithTimeoutCause(e.Work.Life, left, errGrace)
	defer cancel()
	if _, asleep := e.Asleep(string(pod.UID)); asleep {
		return e.Sleeps.inherit(ctx, pod)
	}
	plan, err := e.Plan(ctx, pod)
	if err != nil {
		return err
	}
	ref := objects.RefOf(pod)
	return e.Capture(ctx, &record.Job{
		Asker: record.NewAsker(pod.Namespace, string(pod.UID)+" ends"), Pod: ref, Plan: plan,
		Requester: record.Requester{Namespace: pod.Namespace, Pod: pod.Name}, Closed: true,
	})
}
