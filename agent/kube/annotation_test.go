package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/request"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// ask writes the annotation that asks for a checkpoint.
func (w *world) ask(pod *corev1.Pod, id string) {
	w.t.Helper()
	before := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, podsnapshotv1.AnnotationCheckpoint, id)
	if err := api.client.Patch(w.t.Context(), pod, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// answered waits for the final answer to a request of a pod's annotation.
func (w *world) answered(pod *corev1.Pod, id string) request.Status {
	w.t.Helper()
	until(w, pod, func(p *corev1.Pod) error {
		if s := request.ParseStatus(p); s.ID != id || s.State == request.StateCheckpointing {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	return request.ParseStatus(pod)
}

// TestAnnotation: a pod's annotation does what a trigger does, once for each value.
func TestAnnotation(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	w.start(node)
	pod := w.pod(node, "web")
	var names []string
	for _, id := range []string{"one", "two"} {
		w.ask(pod, id)
		a := w.answered(pod, id)
		if a.State != request.StateComplete || !strings.Contains(a.Message, a.Snapshot) {
			t.Fatalf("answer %+v", a)
		}
		s := w.snapshot(a.Snapshot)
		if err := api.client.Get(t.Context(), keyOf(s), s); err != nil {
			t.Fatal(err)
		}
		if err := is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
			podsnapshotv1.ReasonAllSnapshotsAvailable); err != nil {
			t.Error(err)
		}
		names = append(names, a.Snapshot)
	}
	if names[0] == names[1] {
		t.Error("two requests made one snapshot")
	}
	w.event(pod, corev1.EventTypeNormal, names[1])
	if n := len(w.snapshots()); n != 2 {
		t.Errorf("%d PodSnapshots", n)
	}
}

// TestAnnotationRefused: the reason is in the answer.
func TestAnnotationRefused(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	w.start(node)
	pod := w.pod(node, "lonely", func(p *corev1.Pod) { p.Labels = nil })
	w.ask(pod, "x")
	if a := w.answered(pod, "x"); a.State != request.StateFailed || !strings.Contains(a.Message, "no PodSnapshotPolicy") {
		t.Errorf("answer %+v", a)
	}
	w.event(pod, corev1.EventTypeWarning, "no PodSnapshotPolicy")
	long := strings.Repeat("x", 1000)
	w.ask(pod, long)
	if a := w.answered(pod, long); a.State != request.StateFailed || !strings.Contains(a.Message, "has 1000 bytes") {
		t.Errorf("answer %+v", a)
	}
}

// TestAnnotationFailsOnce: a checkpoint that failed is not retried.
func TestAnnotationFailsOnce(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	tries := make(chan string, 10)
	w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, _ step, o checkpoint.Options) error {
			tries <- o.Name
			return errors.New("no")
		}
	})
	pod := w.pod(node, "web")
	w.ask(pod, "x")
	if a := w.answered(pod, "x"); a.State != request.StateFailed || a.Message != "no" {
		t.Errorf("answer %+v", a)
	}
	w.ask(pod, "y")
	w.answered(pod, "y")
	if len(tries) != 2 {
		t.Errorf("%d checkpoints", len(tries))
	}
}

// TestAnnotationKilled: the next agent finishes what a killed agent left.
func TestAnnotationKilled(t *testing.T) {
	for at, want := range map[step]request.State{
		stepAccept: request.StateComplete, stepCapture: request.StateFailed,
		stepReplicate: request.StateComplete,
	} {
		t.Run(string(at), func(t *testing.T) {
			w := newWorld(t)
			node := w.node("a")
			r := w.start(node, func(f *fakeNode, _ *kube.Config) {
				f.at = func(_ context.Context, s step, _ checkpoint.Options) error {
					if s == at {
						f.die()
					}
					return nil
				}
			})
			pod := w.pod(node, "web")
			w.ask(pod, "x")
			<-r.boot.Done()
			r.kill()
			w.start(node)
			if a := w.answered(pod, "x"); a.State != want {
				t.Errorf("answer %+v", a)
			}
			for k, n := range w.disks[node].captures {
				if n != 1 {
					t.Errorf("%s was captured %d times", k, n)
				}
			}
		})
	}
}

// TestLocalDoor: a checkpoint that the node's operator requested is visible in the cluster.
func TestLocalDoor(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	r := w.start(node)
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"selected": {map[string]string{"app": "web", podsnapshotv1.LabelSandboxNameHash: "a"}, "policy"},
		"lonely":   {nil, podsnapshotv1.NoPolicy},
	} {
		pod := w.pod(node, name, func(p *corev1.Pod) { p.Labels = c.labels })
		if _, err := r.node.Checkpoint(t.Context(), t.Context(),
			checkpoint.Options{Target: string(pod.UID), Name: "by-hand-" + name}); err != nil {
			t.Fatal(err)
		}
		s := w.snapshot("by-hand-" + name)
		until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
			return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
				podsnapshotv1.ReasonAllSnapshotsAvailable)
		})
		w.replicated(s)
		if s.Spec.PolicyName != c.want || s.Annotations[podsnapshotv1.AnnotationOriginPod] != name ||
			s.Annotations[podsnapshotv1.AnnotationSpecHash] == "" {
			t.Errorf("PodSnapshot %+v", s)
		}
		w.event(pod, corev1.EventTypeNormal, "by-hand-"+name)
	}
}

// TestLocalDoorWhileAway: a snapshot made while the API server was unreachable becomes visible when it is back.
func TestLocalDoorWhileAway(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	r := w.start(node)
	pod := w.pod(node, "web")
	w.complete(w.trigger("warm", "web")) // the agent knows the pod
	r.kill()
	q := journal.Request{
		ID: "r1", SnapshotUID: "s1", Pod: refOf(pod), Stage: journal.StageReplicated, Store: "dir:/own",
	}
	q.Key.Namespace, q.Key.Name = w.ns, "away"
	lost := q
	lost.ID, lost.Key.Name = "r2", "lost" // removed again before the cluster learned of it
	d := w.disks[node]
	for _, q := range []journal.Request{q, lost} {
		d.journal[q.ID] = q
		d.order = append(d.order, q.ID)
	}
	d.spool[q.Key] = manifestOf(q, "default", "v1:x")
	if err := w.stores.put(q.Store, d.spool[q.Key]); err != nil {
		t.Fatal(err)
	}
	w.start(node)
	s := w.replicated(w.snapshot("away"))
	if s.Status.StorageStatus.Dir == nil || s.Status.StorageStatus.Dir.ObservedPath != "/own/"+w.ns+"/snapshots/away" {
		t.Errorf("stored at %+v", s.Status.StorageStatus)
	}
	for _, s := range w.snapshots() {
		if s.Name == "lost" {
			t.Error("a snapshot that is not there has a PodSnapshot")
		}
	}
}

// TestNameTaken: a request was waiting when its agent was killed, under a name that is taken. It says nothing about
// the snapshot with that name.
func TestNameTaken(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	r := w.start(node)
	pod := w.pod(node, "web")
	s := w.replicated(w.complete(w.trigger("first", "web")))
	r.kill()
	d := w.disks[node]
	key := snapshot.Key{Namespace: w.ns, Name: s.Name}
	d.journal["r2"] = journal.Request{
		ID: "r2", SnapshotUID: "another", Key: key, Pod: refOf(pod), Stage: journal.StageFailed, Error: "the agent ended",
		Created: time.Now(),
	}
	d.order = append(d.order, "r2")
	delete(d.spool, key) // replicated, and evicted
	w.start(node)
	w.complete(w.trigger("second", "web")) // by then the agent has checked the first
	if err := api.client.Get(t.Context(), keyOf(s), s); err != nil {
		t.Fatal(err)
	}
	if err := is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
		podsnapshotv1.ReasonAllSnapshotsAvailable); err != nil {
		t.Error(err)
	}
}
