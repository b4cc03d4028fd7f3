// Package slumber serves the annotations by which somebody puts a pod of this node to sleep or wakes it, and shows in
// the API server which pods sleep. Reconcilers look at the pod and at the node, and do what is missing, so every step
// can be repeated. A pod's kubelet and its controller take no part: for them the pod runs.
package slumber

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	shimsleep "diapause.dev/runsc/sleep"
)

// Config is what Slumbers work with.
type Config struct {
	Objects *objects.Objects
	Sleeps  Sleeps
	Logger  *slog.Logger
}

// Sleeps is what slumbers need of the agent. *sleep.Sleeps implements it.
type Sleeps interface {
	Sleep(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
	Wake(ctx context.Context, target, cause string) (sleep.Woken, error)
	AsleepPod(uid string) (m shimsleep.Mark, ok bool)
	Waiting(uid string) (why string, ok bool)
	Unwoken(uid string) (why string, ok bool)
}

// Slumbers are the pods of this node that sleep, or are asked to. Its methods may be called concurrently.
type Slumbers struct {
	Config
	pods control.Queue
	life context.Context // of what is asked for; set by Begin
	work sync.WaitGroup

	mu   sync.Mutex
	busy map[types.UID]bool // pods for which a request is carried out
	woke map[string]waken   // why pods have woken, by UID, until their condition says so
	// unheard says since when it is open whether a pod has woken or ended in its sleep.
	unheard map[types.NamespacedName]time.Time
	told    map[types.NamespacedName]fault // pods with annotations that have no effect
}

// waken says how a wake went.
type waken struct {
	cause   string
	took    time.Duration
	failure error // not nil: the pod could not be woken
	at      time.Time
}

// New returns the slumbers of a node.
func New(c Config) *Slumbers {
	return &Slumbers{
		Config: c, busy: make(map[types.UID]bool), woke: make(map[string]waken),
		told:    make(map[types.NamespacedName]fault),
		unheard: make(map[types.NamespacedName]time.Time),
	}
}

// Begin sets what bounds the requests. It must be called before the controller starts, and once.
func (s *Slumbers) Begin(life context.Context) { s.life = life }

// Wait waits until all requests have ended. The controller may not run any more.
func (s *Slumbers) Wait() { s.work.Wait() }

// Control adds the controller.
func (s *Slumbers) Control(mgr manager.Manager) error {
	b := control.Controller(mgr, &s.pods).Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{})
	return control.Complete(b, "sleeper", s.serve)
}

// Slept implements sleep.Cluster.
func (s *Slumbers) Slept(pod snapshot.PodRef) { s.kick(pod) }

// maxWoke bounds how many wakes are remembered until they are shown. Beyond it they are shown without their cause.
const maxWoke = 10000

// Woke implements sleep.Cluster.
func (s *Slumbers) Woke(pod snapshot.PodRef, cause string, took time.Duration) {
	s.note(pod, waken{cause: cause, took: took})
}

// WakeFailed implements sleep.Cluster.
func (s *Slumbers) WakeFailed(pod snapshot.PodRef, err error) { s.note(pod, waken{failure: err}) }

// note keeps how a wake went until the pod's condition shows it.
func (s *Slumbers) note(pod snapshot.PodRef, w waken) {
	w.at = time.Now()
	s.mu.Lock()
	if len(s.woke) < maxWoke {
		s.woke[pod.UID] = w
	}
	s.mu.Unlock()
	s.kick(pod)
}

// SleepsOn implements sleep.Cluster.
func (s *Slumbers) SleepsOn(pod snapshot.PodRef) { s.kick(pod) }

// Waits implements admission.Cluster.
func (s *Slumbers) Waits(pod snapshot.PodRef) { s.kick(pod) }

func (s *Slumbers) kick(pod snapshot.PodRef) {
	s.pods.Kick(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

// serve reconciles one pod of this node.
func (s *Slumbers) serve(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	pod, err := s.Objects.PodHere(ctx, r.NamespacedName)
	if err != nil || pod == nil || pod.DeletionTimestamp != nil {
		s.forgetFaults(r.NamespacedName)
		s.heard(r.NamespacedName)
		return reconcile.Result{}, err
	}
	s.tellFaults(r.NamespacedName, pod)
	mark, asleep := s.Sleeps.AsleepPod(string(pod.UID))
	if again := s.doubt(pod, asleep); again > 0 {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if err := s.show(ctx, pod, mark, asleep); err != nil {
		return control.RetryConflict(client.IgnoreNotFound(err))
	}
	if err := s.answer(ctx, pod); err != nil {
		return control.RetryConflict(client.IgnoreNotFound(err))
	}
	again := s.wakeIn(pod, mark.Since, asleep)
	if _, kept := s.wake(string(pod.UID)); kept && !asleep {
		again = wordTime // until it is forgotten
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// wordTime is how long a pod that no longer sleeps is not said to have woken if no shim has said so. It may have ended
// in its sleep, which the kubelet shows later.
const wordTime = 10 * time.Second

// doubt returns how long it is to be left open whether a pod that slept has woken, or 0.
func (s *Slumbers) doubt(pod *corev1.Pod, asleep bool) time.Duration {
	_, known := s.wake(string(pod.UID))
	name := client.ObjectKeyFromObject(pod)
	if asleep || known || ended(pod) || shown(pod).Status != corev1.ConditionTrue {
		s.heard(name)
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	since, ok := s.unheard[name]
	if !ok {
		since = time.Now()
		s.unheard[name] = since
	}
	return max(wordTime-time.Since(since), 0)
}

// heard ends the doubt about a pod.
func (s *Slumbers) heard(pod types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unheard, pod)
}

// ended reports whether all containers of a pod have ended for good.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
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
func (s *Slumbers) show(ctx context.Context, pod *corev1.Pod, mark shimsleep.Mark, asleep bool) error {
	shown := shown(pod)
	was := shown.Status == corev1.ConditionTrue
	c, action := s.awake(pod), objects.ActionWake
	if asleep {
		c, action = s.asleep(pod, mark), objects.ActionSleep
	}
	// It woke meanwhile, and nobody has seen it.
	again := mark.Since.Truncate(time.Second).After(shown.LastTransitionTime.Time)
	news := c.Reason != shown.Reason || c.Reason == podsnapshotv1.ReasonWakeFailed && c.Message != shown.Message
	other := c.Reason == podsnapshotv1.ReasonSlept && c.Message != shown.Message // whether it is ready, which is no event
	if asleep == was && (!asleep || !news && !again && !other) {
		if !asleep { // it has slept and woken so fast that nobody has seen it, or will yet be seen to have slept
			s.forgetWake(string(pod.UID), time.Now().Add(-wordTime))
		}
		return nil
	}
	version := ""
	if !asleep { // it may have ended in its sleep: then it is deleted, which a conflict brings to light
		version = pod.ResourceVersion
	}
	if err := s.patch(ctx, pod, version, nil, &c); err != nil {
		return err
	}
	until := mark.Since // a wake that was told meanwhile is the end of this sleep
	if !asleep {
		until = time.Now()
	}
	s.forgetWake(string(pod.UID), until)
	if was && c.Reason == podsnapshotv1.ReasonSlept || c.Reason == podsnapshotv1.ReasonEnded { // no news
		return nil
	}
	s.Objects.SleepEvent(objects.RefOf(pod), eventType(c.Reason), c.Reason, action, c.Message)
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
func (s *Slumbers) asleep(pod *corev1.Pod, mark shimsleep.Mark) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionTrue, Reason: podsnapshotv1.ReasonSlept,
		Message:            "The pod is saved and uses no memory; the next packet or exec wakes it",
		LastTransitionTime: metav1.NewTime(mark.Since),
	}
	if mark.Ready {
		c.Message = "The pod is saved and " + podsnapshotv1.ReadyToWake + ": the next packet or exec wakes it"
	}
	if why, waits := s.Sleeps.Waiting(string(pod.UID)); waits {
		c.Reason, c.Message = podsnapshotv1.ReasonWaitsForMemory, "The pod is to be woken and waits: "+why
	}
	if why, failed := s.Sleeps.Unwoken(string(pod.UID)); failed {
		c.Reason = podsnapshotv1.ReasonWakeFailed
		c.Message = rules.Message("The pod could not be woken, sleeps on, and its wake is retried: " + why)
	}
	return c
}

// awake returns the condition of a pod that does not sleep.
func (s *Slumbers) awake(pod *corev1.Pod) corev1.PodCondition {
	woke, known := s.wake(string(pod.UID))
	if ended(pod) && woke.failure == nil {
		return corev1.PodCondition{
			Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionFalse, Reason: podsnapshotv1.ReasonEnded,
			Message: "The pod has ended", LastTransitionTime: metav1.Now(),
		}
	}
	c := corev1.PodCondition{
		Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionFalse, Reason: podsnapshotv1.ReasonWoke,
		Message: "The pod was woken", LastTransitionTime: metav1.Now(),
	}
	switch {
	case woke.failure != nil:
		c.Reason = podsnapshotv1.ReasonWakeFailed
		c.Message = rules.Message("The pod could not be woken, and its sandbox has ended: " + woke.failure.Error())
	case known:
		c.Message = fmt.Sprintf("The pod was woken by %s, within %d ms", woke.cause, woke.took.Milliseconds())
	case startedSince(pod, shown(pod).LastTransitionTime.Time):
		c.Reason = podsnapshotv1.ReasonWakeFailed
		c.Message = "The pod no longer sleeps, and containers of it have started again since it went to sleep"
	}
	return c
}

// startedSince reports whether one of a pod's running containers has started after a time.
func startedSince(pod *corev1.Pod, at time.Time) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil && c.State.Running.StartedAt.After(at)
	})
}

func (s *Slumbers) wake(uid string) (w waken, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, known = s.woke[uid]
	return w, known
}

// forgetWake forgets how a wake went that was told before a time.
func (s *Slumbers) forgetWake(uid string, before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.woke[uid].at.Before(before) {
		delete(s.woke, uid)
	}
}

// maxID bounds the value of an annotation that asks, in bytes.
const maxID = 253

// answer carries out the requests in the pod's annotations that are not answered yet. If both are new, the pod sleeps
// and is then woken.
func (s *Slumbers) answer(ctx context.Context, pod *corev1.Pod) error {
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
		return s.begin(ctx, pod, st, s.putToSleep)
	case woken != "" && woken != st.Wake:
		st.Wake = woken
		return s.begin(ctx, pod, st, s.wakeUp)
	case st.State == podsnapshotv1.SleepWorking && !s.working(pod.UID): // an agent that has ended had taken it
		st.State, st.Message = podsnapshotv1.SleepFailed, "the agent ended before it was done"
		return s.write(ctx, pod, pod.ResourceVersion, st)
	}
	return nil
}

func (s *Slumbers) working(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy[uid]
}

// begin takes a request and carries it out in the background, unless one of the pod is under way: it is looked at again
// at that one's end.
func (s *Slumbers) begin(ctx context.Context, pod *corev1.Pod, st podsnapshotv1.SleepStatus,
	do func(*corev1.Pod) (podsnapshotv1.SleepState, error),
) error {
	s.mu.Lock()
	was := s.busy[pod.UID]
	s.busy[pod.UID] = true
	s.mu.Unlock()
	if was {
		return nil
	}
	st.State, st.Message = podsnapshotv1.SleepWorking, ""
	if err := s.write(ctx, pod, pod.ResourceVersion, st); err != nil {
		s.end(pod)
		return err
	}
	s.work.Go(func() {
		defer s.end(pod)
		state, err := do(pod)
		st.State = state
		if err != nil {
			st.Message = rules.Message(err.Error())
		}
		if s.life.Err() == nil {
			s.writeAnswer(pod, st)
		}
	})
	return nil
}

// end lets the next request of the pod begin.
func (s *Slumbers) end(pod *corev1.Pod) {
	s.mu.Lock()
	delete(s.busy, pod.UID)
	s.mu.Unlock()
	s.kick(objects.RefOf(pod))
}

func (s *Slumbers) putToSleep(pod *corev1.Pod) (podsnapshotv1.SleepState, error) {
	err := s.allowed(s.life, pod)
	if err == nil {
		err = rules.NetAdmin(pod, nil).Sleep(rules.PodKey(pod))
	}
	if err == nil {
		_, err = s.Sleeps.Sleep(s.life, s.life, checkpoint.Options{Target: pod.Namespace + "/" + pod.Name})
	}
	if errors.Is(err, checkpoint.ErrAsleep) {
		return podsnapshotv1.SleepAsleep, nil
	}
	if err != nil {
		s.Objects.SleepEvent(objects.RefOf(pod), corev1.EventTypeWarning, podsnapshotv1.ReasonStaysAwake,
			objects.ActionSleep, "The pod stays awake: "+err.Error())
		return podsnapshotv1.SleepFailed, err
	}
	return podsnapshotv1.SleepAsleep, nil
}

func (s *Slumbers) wakeUp(pod *corev1.Pod) (podsnapshotv1.SleepState, error) {
	if _, err := s.Sleeps.Wake(s.life, pod.Namespace+"/"+pod.Name, "request"); err != nil {
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
func (s *Slumbers) writeAnswer(pod *corev1.Pod, st podsnapshotv1.SleepStatus) {
	ctx, cancel := context.WithTimeout(s.life, answerTime)
	defer cancel()
	for {
		err := s.write(ctx, pod, "", st)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return // done, or another pod has the name
		}
		s.Logger.Warn("the answer about a pod's sleep is not written yet", "pod", rules.PodKey(pod), "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(answerPause):
		}
	}
}

// wakeIn wakes the pod if its annotation says that it is time. Otherwise it returns when to look again, or 0.
func (s *Slumbers) wakeIn(pod *corev1.Pod, since time.Time, asleep bool) time.Duration {
	at, err := time.Parse(time.RFC3339, pod.Annotations[podsnapshotv1.AnnotationWakeAt])
	if err != nil || !asleep || !since.Before(at) {
		return 0
	}
	if rest := time.Until(at); rest > 0 {
		return rest
	}
	if _, waits := s.Sleeps.Waiting(string(pod.UID)); waits { // it is being woken
		return 0
	}
	s.work.Go(func() {
		_, err := s.Sleeps.Wake(s.life, pod.Namespace+"/"+pod.Name, "time")
		if err != nil && !errors.Is(err, context.Canceled) {
			s.Logger.Warn("a pod was not woken in time", "pod", rules.PodKey(pod), "error", err)
		}
	})
	return 0
}

func (s *Slumbers) write(ctx context.Context, pod *corev1.Pod, version string, st podsnapshotv1.SleepStatus) error {
	b, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("sleep status of pod %s: %w", rules.PodKey(pod), err)
	}
	return s.patch(ctx, pod, version, map[string]string{podsnapshotv1.AnnotationSleepStatus: string(b)}, nil)
}

// patch changes annotations or a condition of the pod with this UID and, unless it is empty, this resource version.
func (s *Slumbers) patch(ctx context.Context, pod *corev1.Pod, version string, annotations map[string]string,
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
		err = s.Objects.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, b))
	}
	if err != nil {
		return fmt.Errorf("status of pod %s: %w", rules.PodKey(pod), err)
	}
	return nil
}
