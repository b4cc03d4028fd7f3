package kube_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// terminating makes a world whose policy has that value of the annotation about termination.
func terminating(t *testing.T, value string) *world {
	t.Helper()
	w := newWorld(t)
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationOnTermination, value)
	})
	return w
}

// mayEnd asks as a shim does, until the pod's containers may end, and reports whether the pod was saved.
func (w *world) mayEnd(r *running, pod snapshot.PodRef) (saved bool) {
	w.t.Helper()
	<-r.synced(w)
	return w.ends(r, pod)
}

// ends is mayEnd, perhaps before the agent has heard from the API server.
func (w *world) ends(r *running, pod snapshot.PodRef) (saved bool) {
	for {
		ctx, cancel := context.WithTimeout(w.t.Context(), 200*time.Millisecond)
		wait, saved := r.MayEnd(ctx, pod)
		cancel()
		if wait == 0 {
			return saved
		}
	}
}

// synced returns a channel that is closed when the agent has heard from the API server.
func (r *running) synced(w *world) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for w.t.Context().Err() == nil {
			if _, err := r.Stores(w.t.Context()); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return done
}

func lasting(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// TestSavedOnTermination: a pod that is deleted is saved before its containers may end, and stopped. A container of it
// that is only restarted before may end at once. The PodSnapshot is Ready after the pod has gone, under its policy.
func TestSavedOnTermination(t *testing.T) {
	w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
	node := w.node("a")
	asked := make(chan checkpoint.Options, 1)
	r := w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, s step, o checkpoint.Options) error {
			if s == stepAccept {
				asked <- o
			}
			return nil
		}
	})
	pod := w.pod(node, "web", lasting(60))
	if w.mayEnd(r, refOf(pod)) || len(asked) > 0 {
		t.Error("a pod that is not being deleted was saved")
	}
	w.delete(pod)
	if !w.mayEnd(r, refOf(pod)) {
		t.Fatal("the pod was not saved")
	}
	if !w.mayEnd(r, refOf(pod)) {
		t.Error("its second container was not told so")
	}
	if o := <-asked; !o.Stop || !o.Ending || !o.NoWait {
		t.Errorf("the checkpoint is %+v", o)
	}
	w.deletePod("web")
	all := w.snapshots()
	if len(all) != 1 || all[0].Spec.PolicyName != "policy" {
		t.Fatalf("PodSnapshots %+v", all)
	}
	w.replicated(&all[0])
	until(w, &all[0], func(s *podsnapshotv1.PodSnapshot) error {
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
			podsnapshotv1.ReasonAllSnapshotsAvailable)
	})
}

// TestUnsavedOnTermination: pods that cannot be saved may end at once, and an event says why. So may those that are not
// to be saved, without an event.
func TestUnsavedOnTermination(t *testing.T) {
	const unsaved = "The pod ends without having been saved: "
	for name, tc := range map[string]struct {
		value string
		grace int64
		fail  error
		event string // its beginning; empty: none
		made  int    // PodSnapshots
	}{
		"no time":       {podsnapshotv1.OnTerminationCheckpoint, 1, nil, unsaved, 0},
		"a failure":     {podsnapshotv1.OnTerminationCheckpoint, 60, errors.New("the disk is full"), "the disk is full", 1},
		"another value": {"Checkpoint", 60, nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := terminating(t, tc.value)
			node := w.node("a")
			r := w.start(node, func(n *fakeNode, _ *kube.Config) {
				n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
					if s == stepCapture {
						return tc.fail
					}
					return nil
				}
			})
			pod := w.pod(node, "web", lasting(tc.grace))
			w.delete(pod)
			if w.mayEnd(r, refOf(pod)) {
				t.Error("the pod was saved")
			}
			if tc.event != "" {
				w.event(pod, corev1.EventTypeWarning, tc.event)
			}
			if all := w.snapshots(); len(all) != tc.made {
				t.Errorf("%d PodSnapshots, want %d", len(all), tc.made)
			}
			w.delete(pod, client.GracePeriodSeconds(0))
		})
	}
}

// TestNamespaceEnds: if the whole namespace is deleted, its pods may end at once, and nothing is saved.
func TestNamespaceEnds(t *testing.T) {
	w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
	node := w.node("a")
	r := w.start(node)
	pod := w.pod(node, "web", lasting(60))
	<-r.synced(w)
	w.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	w.delete(pod)
	if w.mayEnd(r, refOf(pod)) || len(w.snapshots()) > 0 {
		t.Error("the pod was saved")
	}
	w.delete(pod, client.GracePeriodSeconds(0))
}

// slowAPI is an API server that does not answer an agent's reads of some path, and holds its watches, until answers is
// closed. It is at most as slow as a test needs.
type slowAPI struct {
	which   string
	slow    atomic.Bool
	asked   chan struct{} // closed at the second read that is cut off
	reads   atomic.Int32
	answers chan struct{}
}

func slowly(which string) *slowAPI {
	return &slowAPI{which: which, asked: make(chan struct{}), answers: make(chan struct{})}
}

func (s *slowAPI) set(_ *fakeNode, c *kube.Config) {
	c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			switch {
			case r.Method != http.MethodGet || !strings.Contains(r.URL.Path, s.which):
			case r.URL.Query().Has("watch"): // what was there when it was asked for is in the cache
				resp, err := next.RoundTrip(r)
				if err == nil {
					resp.Body = lateBody{resp.Body, r.Context(), s}
				}
				return resp, err
			case s.slow.Load():
				if s.reads.Add(1) == 2 {
					close(s.asked)
				}
				select {
				case <-s.answers:
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			}
			return next.RoundTrip(r)
		})
	})
}

// lateBody is what a slow API server says to a watch.
type lateBody struct {
	io.ReadCloser
	ctx context.Context
	s   *slowAPI
}

func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.s.slow.Load() {
		select {
		case <-b.s.answers:
		case <-b.ctx.Done():
		}
	}
	return n, err
}

// TestSavedWhileAPISlow: the API server takes longer than a second to say that a pod is being deleted, or that a policy
// has it saved, and the caches know neither. The pod waits, and is saved.
func TestSavedWhileAPISlow(t *testing.T) {
	for name, which := range map[string]string{"deletion": "/pods", "policy": "/podsnapshotpolicies"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, s := w.node("a"), slowly(which)
			save := func() {
				edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
					metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationOnTermination,
						podsnapshotv1.OnTerminationCheckpoint)
				})
			}
			if name == "deletion" {
				save()
			}
			r := w.start(node, s.set)
			pod := w.pod(node, "web", lasting(60))
			if w.mayEnd(r, refOf(pod)) {
				t.Fatal("a pod that is not being deleted was saved")
			}
			s.slow.Store(true)
			if name == "policy" {
				save()
			}
			w.delete(pod)
			saved := make(chan bool, 1)
			go func() { saved <- w.mayEnd(r, refOf(pod)) }()
			select {
			case <-s.asked:
			case ok := <-saved:
				t.Fatalf("saved %v before the API server has answered", ok)
			}
			close(s.answers)
			if !<-saved {
				t.Error("the pod was not saved")
			}
			w.delete(pod, client.GracePeriodSeconds(0))
		})
	}
}

// TestSavedAsAgentStarts: a pod is told to end before the agent has heard from the API server. It waits, and is saved.
func TestSavedAsAgentStarts(t *testing.T) {
	w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
	node, s := w.node("a"), slowly("/pods")
	pod := w.pod(node, "web", lasting(60))
	w.delete(pod)
	s.slow.Store(true)
	r := w.start(node, s.set)
	answer := sync.OnceFunc(func() { close(s.answers) })
	t.Cleanup(answer)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if wait, saved := r.MayEnd(ctx, refOf(pod)); wait == 0 {
		t.Fatalf("it may end at once, saved %v", saved)
	}
	answer()
	if !w.ends(r, refOf(pod)) {
		t.Error("the pod was not saved")
	}
}

// TestEndsWhileAPIAway: while the API server is away, a pod may end after a part of its grace period.
func TestEndsWhileAPIAway(t *testing.T) {
	w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
	node, s := w.node("a"), slowly("/pods")
	r := w.start(node, s.set)
	pod := w.pod(node, "web", lasting(9))
	w.mayEnd(r, refOf(pod)) // its pod is in the cache
	s.slow.Store(true)
	began := time.Now()
	if w.mayEnd(r, refOf(pod)) {
		t.Error("the pod was saved")
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("it may end after %v", took)
	}
	w.event(pod, corev1.EventTypeWarning, "A container ends, and the pod is not saved: the API server did not say")
	close(s.answers)
}

// owned gives a pod a controller.
func owned(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "replicas", Controller: new(true),
	}}
}

// TestSuccessorWaits: a pod that starts before the one that it replaces is saved waits for that, and gets its snapshot,
// not an older one.
func TestSuccessorWaits(t *testing.T) {
	w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
	a, b := w.node("a"), w.node("b")
	w.control()
	h := holdAt(stepCapture)
	ra, rb := w.start(a, h.set), w.start(b)
	old := w.pod(a, "old", owned, lasting(60))
	w.delete(old)
	saved := make(chan bool, 1)
	go func() { saved <- w.mayEnd(ra, refOf(old)) }()
	<-h.reached
	next := w.pod(b, "next", owned)
	<-rb.synced(w)
	if err := hopeless(t, rb, next); !errors.Is(err, rules.ErrPending) {
		t.Errorf("before the save: %v", err)
	}
	close(h.release)
	if !<-saved {
		t.Fatal("the pod was not saved")
	}
	c, err := choose(t, rb, next, enough)
	if all := w.snapshots(); err != nil || len(all) != 1 || c.Snapshot.Name != all[0].Name {
		t.Errorf("%+v, %v, want one of %+v", c, err, all)
	}
}

// TestSuccessorWaitsWhileAPISlow: a successor does not start from an older snapshot because the API server takes longer
// than a second to name the pods that it replaces.
func TestSuccessorWaitsWhileAPISlow(t *testing.T) {
	w := terminating(t, podsnapshotv1.OnTerminationCheckpoint)
	a, b := w.node("a"), w.node("b")
	w.control()
	h, s := holdAt(stepCapture), slowly("/namespaces/"+w.ns+"/pods")
	ra, rb := w.start(a, h.set), w.start(b, s.set)
	old := w.pod(a, "old", owned, lasting(60))
	w.delete(old)
	saved := make(chan bool, 1)
	go func() { saved <- w.mayEnd(ra, refOf(old)) }()
	<-h.reached
	next := w.pod(b, "next", owned)
	<-rb.synced(w)
	if err := hopeless(t, rb, next); !errors.Is(err, rules.ErrPending) {
		t.Fatalf("before the save: %v", err)
	}
	s.slow.Store(true)
	chosen := make(chan error, 1)
	go func() {
		c, err := choose(t, rb, next, 2*enough)
		if err == nil && c.Snapshot.Name == "" {
			err = errors.New("it starts from nothing")
		}
		chosen <- err
	}()
	select {
	case <-s.asked:
	case err := <-chosen:
		t.Fatalf("chosen before the API server has answered: %v", err)
	}
	close(s.answers)
	close(h.release)
	if !<-saved {
		t.Fatal("the pod was not saved")
	}
	if err := <-chosen; err != nil {
		t.Error(err)
	}
}
