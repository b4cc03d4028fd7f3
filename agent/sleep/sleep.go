package sleep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
	"diapause.dev/storage"
)

// Config is what sleeps need.
type Config struct {
	Checkpoints Checkpoints
	Restores    Restores
	Runtime     Runtime
	Snapshots   Snapshots
	Journal     *journal.Journal
	Life        *lifetime.Life
	Ready       Ready
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
	Asleep() []sleep.Mark
	PodAsleep(sandbox string) (pod snapshot.PodRef, ok bool)
}

// Ready keeps some of the pods ready that sleep. *ready.Pool implements it. Its methods must not block.
type Ready interface {
	Changed()        // a pod may have fallen asleep, or have ended
	Woke(uid string) // a pod was woken
}

// Snapshots removes snapshots. *snapshots.Catalog implements it.
type Snapshots interface {
	Remove(ctx context.Context, r snapshots.Removal) error
}

// Runtime is what sleeps need of containerd. *cri.Client implements it.
type Runtime interface {
	Find(ctx context.Context, target string) (*cri.Pod, error)
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
	cluster Cluster // or nil

	mu      sync.Mutex
	unwoken map[string]string // why pods that sleep could not be woken, by their UIDs
}

// New returns the sleeps of a node.
func New(c Config) *Sleeps { return &Sleeps{Config: c, unwoken: make(map[string]string)} }

// Join sets the cluster that is told. It must be called before the first sleep, and at most once.
func (s *Sleeps) Join(c Cluster) { s.cluster = c }

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

// removeTime bounds the removal of one snapshot.
const removeTime = time.Minute

// Changed must be called with each step of every request. Once the snapshot of a sleep is in its store, it removes
// those of earlier sleeps, in the background.
func (s *Sleeps) Changed(r *journal.Record) {
	if r.Sleep && r.Stage == journal.StageReplicated {
		newest := r.Clone()
		s.Life.Go(func() { s.removeFormer(s.Life.Context(), newest) })
	}
}

// removeFormer removes the snapshots of earlier sleeps of the same pod, which are in the same store: the newest one has
// all that the pod is. One that was given a name stays. So does one that is not in its store yet, until the next sleep.
// After a reboot the pod has another sandbox; a pod without a UID is known by its sandbox alone.
func (s *Sleeps) removeFormer(ctx context.Context, newest *journal.Record) {
	former := s.Journal.Where(func(r *journal.Record) bool {
		same := r.SandboxID == newest.SandboxID || r.PodUID != "" && r.PodUID == newest.PodUID
		stored := r.Stage == journal.StageReplicated && r.Store == newest.Store
		return r.Passing && same && stored && r.Created.Before(newest.Created)
	})
	s.remove(ctx, former)
}

// RemoveEarlier removes the snapshots of sleeps that an earlier agent has made, of pods that are awake: they do not say
// what they are for, and serve other pods, too. One that a pod still loads from is left to the next call.
func (s *Sleeps) RemoveEarlier(ctx context.Context) {
	earlier := s.Journal.Where(func(r *journal.Record) bool {
		return r.Passing && r.Purpose == "" && r.Stage == journal.StageReplicated
	})
	if len(earlier) == 0 {
		return
	}
	asleep := s.All()
	s.remove(ctx, slices.DeleteFunc(earlier, func(r *journal.Record) bool {
		_, ok := asleep[r.SandboxID]
		return ok
	}))
}

// remove removes the snapshots of sleeps.
func (s *Sleeps) remove(ctx context.Context, records []*journal.Record) {
	for _, r := range records {
		ctx, cancel := context.WithTimeout(ctx, removeTime)
		err := s.Snapshots.Remove(ctx, snapshots.Removal{ID: snapshots.ID{Key: r.Key}, From: snapshots.FromEverywhere})
		cancel()
		if errors.Is(err, storage.ErrNotFound) {
			err = nil
		}
		if err == nil {
			r = r.Clone()
			r.Passing = false
			err = s.Journal.Put(r)
		}
		if err != nil {
			s.Logger.Warn("the snapshot of a former sleep is not removed; it is retried", "snapshot",
				r.Key.String(), "error", err)
		}
	}
}

// Woken is the result of a wake.
type Woken struct {
	Pod   *cri.Pod
	Since time.Time // when it fell asleep; zero: it did not sleep
	Took  time.Duration
}

// Wake wakes a pod, and returns when it runs. If it does not sleep, nothing is done.
func (s *Sleeps) Wake(ctx context.Context, target, cause string) (w Woken, err error) {
	if w.Pod, err = s.Runtime.Find(ctx, target); err != nil {
		return w, err
	}
	if err := w.Pod.CheckRuntime(); err != nil {
		return w, err
	}
	w.Since, _ = s.Asleep(w.Pod.ID)
	began := time.Now()
	if err := s.Runtime.OrderSleep(ctx, w.Pod.ID, sleep.Order{Verb: sleep.Wake, Cause: cause}); err != nil {
		return w, fmt.Errorf("wake pod %s: %w", w.Pod, err)
	}
	w.Took = time.Since(began)
	return w, nil
}

// Asleep reports whether the pod of a sandbox sleeps, and since when.
func (s *Sleeps) Asleep(sandbox string) (since time.Time, ok bool) {
	for _, m := range s.Restores.Asleep() {
		if m.Sandbox == sandbox {
			return m.Since, true
		}
	}
	return time.Time{}, false
}

// AsleepPod returns the mark of the pod with this UID. ok is false if it does not sleep.
func (s *Sleeps) AsleepPod(uid string) (m sleep.Mark, ok bool) {
	for _, m := range s.Restores.Asleep() {
		if m.UID == uid {
			return m, true
		}
	}
	return sleep.Mark{}, false
}

// ReadyChanged notes that the pod of a sandbox, which sleeps, is ready to wake, or no longer is.
func (s *Sleeps) ReadyChanged(sandbox string) {
	if pod, ok := s.Restores.PodAsleep(sandbox); ok && s.cluster != nil {
		s.cluster.SleepsOn(pod)
	}
}

// All returns the pods that sleep, by the ids of their sandboxes.
func (s *Sleeps) All() map[string]sleep.Mark {
	all := make(map[string]sleep.Mark)
	for _, m := range s.Restores.Asleep() {
		all[m.Sandbox] = m
	}
	return all
}

// Woke notes that a shim has woken a pod.
func (s *Sleeps) Woke(pod snapshot.PodRef, sandbox string, w *localv1.Woken) {
	took := w.GetTook().AsDuration()
	s.Metrics.Woke(w)
	s.Ready.Woke(pod.UID)
	s.setUnwoken(pod.UID, "")
	s.Logger.Info("pod is awake", "pod", pod.String(), "sandbox", sandbox, "cause", w.GetCause(), "took", took,
		"ready", w.GetReady(), "delivered", w.GetDelivered(), "dropped", w.GetDropped())
	if s.cluster != nil {
		s.cluster.Woke(pod, w.GetCause(), took)
	}
}

// SleepsOn notes that a shim could not wake a pod, and that it sleeps on.
func (s *Sleeps) SleepsOn(pod snapshot.PodRef, sandbox string, err error) {
	s.Metrics.WakeFailed()
	s.Logger.Error("pod could not be woken, and sleeps on", "pod", pod.String(), "sandbox", sandbox, "error", err)
	s.setUnwoken(pod.UID, err.Error())
	if s.cluster != nil {
		s.cluster.SleepsOn(pod)
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
	asleep := s.Restores.Asleep()
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
	if s.cluster != nil {
		s.cluster.WakeFailed(pod, err)
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
		if _, asleep := h.s.Asleep(pod.ID); asleep { // only the answer was lost
			h.remember(request, pod)
			return nil
		}
		h.s.Restores.DropWake(request, err)
		return err
	}
	h.remember(request, pod)
	if h.s.cluster != nil {
		h.s.cluster.Slept(ref)
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
