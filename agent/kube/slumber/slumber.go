// Package slumber serves the annotations by which somebody puts a pod of this node to sleep or wakes it, and shows in
// the API server which pods sleep. Reconcilers look at the pod and at the node, and do what is missing, so every step
// can be repeated. A pod's kubelet and its controller take no part: for them the pod runs.
package slumber

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	shimsleep "diapause.dev/runsc/sleep"
)

// Config is what Slumbers work with.
type Config struct {
	Objects *objects.Objects
	News    *News // of this node's pods
	Sleeps  Sleeps
	Waker   Waker
	// Waiting returns what the wake of the pod with that UID waits for. Ok is false if it does not wait.
	Waiting func(uid string) (why string, ok bool)
	Life    context.Context // bounds what is asked for
	Logger  *slog.Logger
}

// Sleeps is what slumbers need of the agent. *sleep.Sleeps implements it.
type Sleeps interface {
	// Sleep saves a pod and ends its sandbox. The pod stays.
	Sleep(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
	// Unwoken returns why the pod with that UID, which sleeps, could not be woken. Ok is false if that was not tried.
	Unwoken(uid string) (why string, ok bool)
}

// Waker wakes pods. *sleep.Waker implements it.
type Waker interface {
	// Wake wakes a pod that sleeps.
	Wake(ctx context.Context, target, cause string) (sleep.Woken, error)
	// AsleepPod returns the mark of the pod with that UID. Ok is false if it does not sleep.
	AsleepPod(uid string) (m shimsleep.Mark, ok bool)
}

// Slumbers are the pods of this node that sleep, or are asked to. Its methods may be called concurrently.
type Slumbers struct {
	objects *objects.Objects
	waker   Waker
	waiting func(uid string) (why string, ok bool)
	log     *slog.Logger
	news    *News
	work    *control.Background // what is asked for

	doubts     *doubts
	faults     *faults
	conditions *conditions
	answers    *answers
}

// New returns the slumbers of a node.
func New(c Config) *Slumbers {
	s := &Slumbers{
		objects: c.Objects, waker: c.Waker, waiting: c.Waiting, log: c.Logger, news: c.News,
		work: control.NewBackground(c.Life), faults: newFaults(c.Objects), doubts: newDoubts(c.News.wakes),
	}
	s.conditions = &conditions{objects: c.Objects, sleeps: c.Sleeps, waiting: c.Waiting, wakes: c.News.wakes}
	s.answers = &answers{
		objects: c.Objects, sleeps: c.Sleeps, waker: c.Waker, work: s.work, kick: c.News.kick,
		log: c.Logger, busy: make(map[types.UID]bool),
	}
	return s
}

// Wait waits until all requests have ended. The controller may not run any more.
func (s *Slumbers) Wait() { s.work.Wait() }

// Control adds the controller.
func (s *Slumbers) Control(mgr manager.Manager) error {
	b := control.Controller(mgr, &s.news.pods).Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{})
	return control.Complete(b, "sleeper", s.serve)
}

// serve reconciles one pod of this node.
func (s *Slumbers) serve(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	pod, err := s.objects.PodHere(ctx, r.NamespacedName)
	if err != nil || pod == nil || pod.DeletionTimestamp != nil {
		s.faults.forget(r.NamespacedName)
		s.doubts.end(r.NamespacedName)
		return reconcile.Result{}, err
	}
	s.faults.tell(r.NamespacedName, pod)
	mark, asleep := s.waker.AsleepPod(string(pod.UID))
	if again := s.doubts.left(pod, asleep); again > 0 {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if err := s.conditions.show(ctx, pod, mark, asleep); err != nil {
		return control.RetryConflict(client.IgnoreNotFound(err))
	}
	if err := s.answers.answer(ctx, pod); err != nil {
		return control.RetryConflict(client.IgnoreNotFound(err))
	}
	again := s.wakeIn(pod, mark.Since, asleep)
	if _, kept := s.news.wakes.of(string(pod.UID)); kept && !asleep {
		again = wordTime // until it is forgotten
	}
	return reconcile.Result{RequeueAfter: again}, nil
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
	if _, waits := s.waiting(string(pod.UID)); waits { // it is being woken
		return 0
	}
	s.work.Go(func() {
		_, err := s.waker.Wake(s.work.Life, pod.Namespace+"/"+pod.Name, "time")
		if err != nil && !errors.Is(err, context.Canceled) {
			s.log.Warn("a pod was not woken in time", "pod", rules.PodKey(pod), "error", err)
		}
	})
	return 0
}
