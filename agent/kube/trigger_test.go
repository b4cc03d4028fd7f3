package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// TestTrigger: a trigger makes one PodSnapshot with everything that the API's contract requires.
func TestTrigger(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	w.start(node)
	pod := w.pod(node, "web")
	tr := w.trigger("t", "web")
	s := w.complete(tr)
	if tr.Status.Conditions[0].LastTransitionTime.IsZero() || tr.Status.NodeName != node ||
		tr.Status.PodUID != string(pod.UID) {
		t.Errorf("status %+v", tr.Status)
	}
	if s.Spec.PolicyName != "policy" || s.Labels[podsnapshotv1.LabelSandboxNameHash] != "0a0a0a0a" ||
		len(s.OwnerReferences) > 0 {
		t.Errorf("PodSnapshot %+v", s)
	}
	for k, want := range map[string]string{
		podsnapshotv1.AnnotationOriginPod: "web", podsnapshotv1.AnnotationOriginNode: node,
		podsnapshotv1.AnnotationServiceAccount: "default",
		podsnapshotv1.AnnotationRunscVersion:   "r1", podsnapshotv1.AnnotationArchitecture: "amd64",
		podsnapshotv1.AnnotationTrigger:       "t",
		podsnapshotv1.AnnotationStorageConfig: w.ns, podsnapshotv1.AnnotationSnapshotUID: "s-" + s.Name,
	} {
		if got := s.Annotations[k]; got != want {
			t.Errorf("annotation %s is %q, want %q", k, got, want)
		}
	}
	if s.Annotations[podsnapshotv1.AnnotationSpecHash] == "" ||
		s.Annotations[podsnapshotv1.AnnotationDistilledSpec] == "" {
		t.Errorf("annotations %q", s.Annotations)
	}
	w.replicated(s)
	if got, want := s.Status.StorageStatus.GCS.ObservedGCSPath, w.location()+"/"+w.ns+"/snapshots/"+s.Name; got != want {
		t.Errorf("stored at %s, want %s", got, want)
	}
	if err := is(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint, metav1.ConditionTrue,
		podsnapshotv1.ReasonSucceeded); err != nil {
		t.Error(err)
	}
	w.event(pod, corev1.EventTypeNormal, "Successfully checkpointed the pod to PodSnapshot "+w.ns+"/"+s.Name)
}

// TestTriggerRefused: each reason is given on the trigger and, if there is a pod, on the pod.
func TestTriggerRefused(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, s step, o checkpoint.Options) error {
			if s == stepAccept {
				return fmt.Errorf("pod %s: %w: run it with the runtime handler of that type", podByUID(o.Target),
					cri.ErrOtherRuntime)
			}
			return nil
		}
	})
	w.control()
	twice, storeless := w.policy("twice"), w.policy("storeless")
	twice.Spec.Selector.MatchLabels = map[string]string{"twice": "yes"}
	storeless.Spec.Selector.MatchLabels, storeless.Spec.StorageConfigName = map[string]string{"app": "storeless"}, "gone"
	w.create(twice)
	w.create(storeless)
	labels := func(l map[string]string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels = l } }
	hash := podsnapshotv1.LabelSandboxNameHash
	deleted := w.pod(node, "deleted", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} })
	w.deletePod("deleted")
	t.Cleanup(func() {
		deleted.Finalizers = nil
		api.client.Patch(context.Background(), deleted,
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"absent": {nil, "there is no pod " + w.ns + "/absent: name a pod of namespace " + w.ns + " that runs"},
		"unplaced": {w.pod("", "unplaced", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), "pod " + w.ns +
			"/unplaced is not running, it has no node yet"},
		"pending": {
			w.pod(node, "pending", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
			"is not running yet (Pending)",
		},
		"ended": {
			w.pod(node, "ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			"is not running, it has ended (Failed)",
		},
		"deleted": {deleted, "is being deleted"},
		"runtime": {w.pod(node, "runtime"), "runs under another runtime: run it with the runtime handler"},
		"lonely": {w.pod(node, "lonely", labels(map[string]string{"app": "x"})), "no PodSnapshotPolicy of namespace " +
			w.ns + " selects pod"},
		"several": {
			w.pod(node, "several", labels(map[string]string{"app": "web", "twice": "yes", hash: "a"})),
			"several PodSnapshotPolicies select pod " + w.ns + "/several: policy, twice",
		},
		"ungrouped": {w.pod(node, "ungrouped", labels(map[string]string{"app": "web"})), "lacks the label " + hash},
		"storeless": {
			w.pod(node, "storeless", labels(map[string]string{"app": "storeless", hash: "a"})),
			"names the PodSnapshotStorageConfig gone, which does not exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.failed(w.trigger(name, name)); !strings.Contains(got, c.want) {
				t.Errorf("message %q, want %q", got, c.want)
			}
			if c.pod != nil && c.pod.Spec.NodeName != "" {
				w.event(c.pod, corev1.EventTypeWarning, "Failed to checkpoint the pod")
			}
		})
	}
	if left := w.snapshots(); len(left) > 0 {
		t.Errorf("%d PodSnapshots were made", len(left))
	}
}

// TestTriggerFails: a checkpoint that fails halfway leaves a PodSnapshot that says so.
func TestTriggerFails(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, s step, o checkpoint.Options) error {
			if s != stepCapture {
				return nil
			}
			err := w.eventually(func(context.Context) error {
				if len(w.snapshots()) == 0 {
					return errors.New("no PodSnapshot")
				}
				return nil
			})
			return errors.Join(err, errors.New("runsc: exit status 128"))
		}
	})
	pod := w.pod(node, "web")
	if got := w.failed(w.trigger("t", "web")); got != "runsc: exit status 128" {
		t.Errorf("message %q", got)
	}
	w.event(pod, corev1.EventTypeWarning, "Failed to checkpoint the pod: runsc: exit status 128")
	all := w.snapshots()
	if len(all) != 1 {
		t.Fatalf("%d PodSnapshots", len(all))
	}
	until(w, &all[0], func(s *podsnapshotv1.PodSnapshot) error {
		return errors.Join(
			is(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint, metav1.ConditionFalse, podsnapshotv1.ReasonFailed),
			is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse, podsnapshotv1.ReasonFailed))
	})
}

// TestTriggersInTurn: triggers of one pod are answered in their order, one checkpoint at a time. Triggers of other
// pods do not wait for them.
func TestTriggersInTurn(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	hold := make(chan struct{})
	var order []string
	r := w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, s step, o checkpoint.Options) error {
			if pod := podByUID(o.Target); s == stepCapture && pod.Name == "web" {
				<-hold
				n.mu.Lock()
				order = append(order, o.Name)
				n.mu.Unlock()
			}
			return nil
		}
	})
	w.pod(node, "web")
	w.pod(node, "other")
	var triggers []*podsnapshotv1.PodSnapshotManualTrigger
	for _, name := range []string{"d", "c", "b", "a", "e"} {
		triggers = append(triggers, w.trigger(name, "web"))
	}
	w.complete(w.trigger("beside", "other"))
	w.delete(triggers[2])
	close(hold)
	var want []string
	for i, tr := range triggers {
		if i != 2 {
			want = append(want, w.complete(tr).Name)
		}
	}
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	if !slices.Equal(order, want) {
		t.Errorf("checkpoints %q, want %q", order, want)
	}
	if r.node.most != 1 {
		t.Errorf("%d checkpoints of one pod at once", r.node.most)
	}
}

// TestTriggerDeleted: the snapshot of a trigger that is deleted meanwhile is still made.
func TestTriggerDeleted(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	capture := holdAt(stepCapture)
	w.start(node, capture.set)
	w.pod(node, "web")
	tr := w.trigger("t", "web")
	<-capture.reached
	w.delete(tr)
	close(capture.release)
	err := w.eventually(func(context.Context) error {
		if all := w.snapshots(); len(all) != 1 || meta.FindStatusCondition(all[0].Status.Conditions, "Ready") == nil {
			return fmt.Errorf("%d PodSnapshots", len(all))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.replicated(&w.snapshots()[0])
}

// TestPodDeletedAtOnce: the pod is deleted as soon as its trigger is Complete, before the replication.
func TestPodDeletedAtOnce(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	replicate := holdAt(stepReplicate)
	w.start(node, replicate.set)
	w.pod(node, "web")
	s := w.complete(w.trigger("t", "web"))
	if err := is(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse,
		podsnapshotv1.ReasonAwaitingCheckpoint); err != nil {
		t.Error(err)
	}
	w.deletePod("web")
	close(replicate.release)
	w.replicated(s)
}

// TestSnapshotDeletedMeanwhile: if a PodSnapshot is deleted while it is made, its trigger fails, and nothing of it
// stays.
func TestSnapshotDeletedMeanwhile(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	capture := holdAt(stepCapture)
	w.start(node, capture.set)
	w.control()
	w.pod(node, "web")
	tr := w.trigger("t", "web")
	<-capture.reached
	err := w.eventually(func(context.Context) error {
		if len(w.snapshots()) == 0 {
			return errors.New("no PodSnapshot")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s := w.snapshots()[0]
	w.delete(&s)
	close(capture.release) // the deletion waits for it: the node might be storing it
	w.gone(&s)
	if got := w.failed(tr); !strings.Contains(got, "was deleted while it was being made") {
		t.Errorf("message %q", got)
	}
	err = w.eventually(func(context.Context) error {
		if w.disks[node].manifest(snapshot.Key{Namespace: w.ns, Name: s.Name}) != nil {
			return errors.New("it is still on the node")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if left := w.snapshots(); len(left) > 0 {
		t.Errorf("%d PodSnapshots", len(left))
	}
}

// TestStop: the policy asks for the pod to be stopped.
func TestStop(t *testing.T) {
	w := stopping(t)
	node := w.node("a")
	var stopped atomic.Bool
	w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, _ step, o checkpoint.Options) error {
			stopped.Store(o.Stop && o.Completed)
			return nil
		}
	})
	w.pod(node, "web")
	w.complete(w.trigger("t", "web"))
	if !stopped.Load() {
		t.Error("the pod was not stopped")
	}
}

// TestRunscReplaced: a PodSnapshot names the runsc that its pod ran, even if the node has another one by now.
func TestRunscReplaced(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	w.start(node, func(n *fakeNode, _ *kube.Config) {
		n.ran = n.facts
		n.ran.RunscVersion = "r0"
	})
	w.pod(node, "web")
	s := w.complete(w.trigger("t", "web"))
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if got := s.Annotations[podsnapshotv1.AnnotationRunscVersion]; got != "r0" {
			return fmt.Errorf("runsc version %q", got)
		}
		return nil
	})
}
