package sleep

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
)

// Config is what sleeps need.
type Config struct {
	Checkpoints Checkpoints
	Restores    Restores
	Runtime     Runtime
	Waker       *Waker
	Ready       Ready
	Cluster     Cluster // nil: there is none
	Metrics     Metrics
	Logger      *slog.Logger
}

// Checkpoints saves pods. *checkpoint.Checkpoints implements it.
type Checkpoints interface {
	Checkpoint(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
}

// Restores prepares what wakes a pod. *restore.Wakes implements it.
type Restores interface {
	PrepareWake(ctx context.Context, id snapshots.ID, pod snapshot.PodRef, sandbox string) (request, dir string, err error)
	DropWake(request string, reason error)
	Remember(request string) error
	PodAsleep(sandbox string) (pod snapshot.PodRef, ok bool)
}

// Ready keeps some of the pods ready that sleep. *ready.Demand implements it. Its methods must not block.
type Ready interface {
	Changed()        // a pod may have fallen asleep, or have ended
	Woke(uid string) // a pod was woken
}

// Runtime is what sleeps need of containerd. *cri.Client implements it.
type Runtime interface {
	OrderSleep(ctx context.Context, podID string, o sleep.Order) error
	Restless(ctx context.Context, podID string) error
}

// Metrics count sleeps.
type Metrics interface {
	Slept(err error)
	Woke(w *localv1.Woken)
	WakeFailed()
}

// Cluster is told what becomes of pods, if the node belongs to one. Its methods must not block.
type Cluster interface {
	// Slept reports that a pod sleeps.
	Slept(pod snapshot.PodRef)
	// Woke reports that a pod has been woken: why, and how long that took.
	Woke(pod snapshot.PodRef, cause string, took time.Duration)
	// WakeFailed reports that a pod could not be woken, and that its sandbox has ended.
	WakeFailed(pod snapshot.PodRef, err error)
	// SleepsOn reports that a pod sleeps on that could not be woken, is ready to wake, or no longer is.
	SleepsOn(pod snapshot.PodRef)
}

// Sleeps are the sleeps of this node's pods. Its methods may be called concurrently.
type Sleeps struct {
	Config

	mu      sync.Mutex
	unwoken map[string]string // why pods that sleep could not be woken, by their UIDs
}

// New returns the sleeps of a node.
func New(c Config) *Sleeps { return &Sleeps{Config: c, unwoken: make(map[string]string)} }

// Sleep saves a pod and has its sandbox ended. It returns once the pod sleeps; its snapshot is then on this node, and
// is replicated in the background. If anything fails, or a packet comes for the pod meanwhile, the pod runs on. Of o,
// it sets what concerns the sleep.
func (s *Sleeps) Sleep(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error) {
	o.Handover, o.NoWait = &handover{s, o.WakeToEnd, o.Ignored, o.AnswerWithin}, true
	f, err := s.Checkpoints.Checkpoint(ctx, life, o)
	s.Metrics.Slept(err)
	s.Ready.Changed()
	return f, err
}

// ReadyChanged notes that the pod of a sandbox, which sleeps, is ready to wake, or no longer is.
func (s *Sleeps) ReadyChanged(sandbox string) {
	if pod, ok := s.Restores.PodAsleep(sandbox); ok && s.Cluster != nil {
		s.Cluster.SleepsOn(pod)
	}
}

// Woke notes that a shim has woken a pod.
func (s *Sleeps) Woke(pod snapshot.PodRef, sandbox string, w *localv1.Woken) {
	took := w.GetTook().AsDuration()
	s.Metrics.Woke(w)
	s.Ready.Woke(pod.UID)
	s.setUnwoken(pod.UID, "")
	s.Logger.Info("pod is awake", "pod", pod.String(), "sandbox", sandbox, "cause", w.GetCause(), "took", took,
		"ready", w.GetReady(), "delivered", w.GetDelivered(), "dropped", w.GetDropped())
	if s.Cluster != nil {
		s.Cluster.Woke(pod, w.GetCause(), took)
	}
}

// SleepsOn notes that a shim could not wake a pod, and that it sleeps on.
func (s *Sleeps) SleepsOn(pod snapshot.PodRef, sandbox string, err error) {
	s.Metrics.WakeFailed()
	s.Logger.Error("pod could not be woken, and sleeps on", "pod", pod.String(), "sandbox", sandbox, "error", err)
	s.setUnwoken(pod.UID, err.Error())
	if s.Cluster != nil {
		s.Cluster.SleepsOn(pod)
	}
}

// Unwoken returns why the pod with this UID, which sleeps, could not be woken when that was tried last. Ok is false if
// it was not tried, or not since this agent has begun.
func (s *Sleeps) Unwoken(uid string) (why string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why, ok = s.unwoken[uid]
	return why, ok
}

// setUnwoken notes why a pod could not be woken; empty: it was, or has ended. It forgets the pods that do not sleep.
func (s *Sleeps) setUnwoken(uid, why string) {
	asleep := s.Waker.marks.All()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.unwoken, func(uid, _ string) bool {
		return !slices.ContainsFunc(asleep, func(m sleep.Mark) bool { return m.UID == uid })
	})
	delete(s.unwoken, uid)
	if why != "" {
		s.unwoken[uid] = why
	}
}

// WakeFailed notes that a shim could not wake a pod, and has ended its sandbox.
func (s *Sleeps) WakeFailed(pod snapshot.PodRef, sandbox string, err error) {
	s.Metrics.WakeFailed()
	s.setUnwoken(pod.UID, "")
	s.Logger.Error("pod could not be woken, and has ended", "pod", pod.String(), "sandbox", sandbox, "error", err)
	if s.Cluster != nil {
		s.Cluster.WakeFailed(pod, err)
	}
}

// handover implements checkpoint.Handover.
type handover struct {
	s            *Sleeps
	wakeToEnd    bool
	ignored      []traffic.Ignored
	answerWithin time.Duration
}

// Watch implements checkpoint.Handover.
func (h *handover) Watch(ctx context.Context, pod *cri.Pod, containers []string) error {
	err := h.s.Runtime.OrderSleep(ctx, pod.ID, sleep.Order{
		Verb: sleep.Watch, Containers: containers, Ignored: h.ignored, AnswerWithin: h.answerWithin,
	})
	if err != nil {
		return err
	}
	// From here on, a container that is created has the pod stay awake.
	return h.s.Runtime.Restless(ctx, pod.ID)
}

// Take implements checkpoint.Handover.
func (h *handover) Take(ctx context.Context, pod *cri.Pod, holder string, id snapshots.ID) error {
	ref := snapshot.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	request, dir, err := h.s.Restores.PrepareWake(ctx, id, ref, pod.ID)
	if err != nil {
		return err
	}
	err = h.s.Runtime.OrderSleep(ctx, pod.ID, sleep.Order{
		Verb: sleep.Fall, Holder: holder, Image: dir, WakeToEnd: h.wakeToEnd,
	})
	if err != nil {
		if _, asleep := h.s.Waker.Asleep(pod.ID); asleep { // only the answer was lost
			h.remember(request, pod)
			return nil
		}
		h.s.Restores.DropWake(request, err)
		return err
	}
	h.remember(request, pod)
	if h.s.Cluster != nil {
		h.s.Cluster.Slept(ref)
	}
	h.s.Logger.Info("pod sleeps", "pod", pod.String(), "snapshot", id.Key.String(), "request", request)
	return nil
}

// remember sees to it that the pod is restored if the node reboots while it sleeps.
func (h *handover) remember(request string, pod *cri.Pod) {
	if err := h.s.Restores.Remember(request); err != nil {
		h.s.Logger.Error("if the node reboots, a pod that sleeps starts cold", "pod", pod.String(), "error", err)
	}
}

// Leave implements checkpoint.Handover.
func (h *handover) Leave(ctx context.Context, pod *cri.Pod) {
	if err := h.s.Runtime.OrderSleep(ctx, pod.ID, sleep.Order{Verb: sleep.Stay}); err != nil {
		h.s.Logger.Warn("a pod is still watched for packets", "pod", pod.String(), "error", err)
	}
}
