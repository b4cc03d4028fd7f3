package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// stored reports whether the world's store has a snapshot.
func (w *world) stored(name string) bool {
	_, err := w.stores.get(w.location(), snapshot.Key{Namespace: w.ns, Name: name})
	return err == nil
}

// edit changes an object.
func edit[T client.Object](w *world, o T, change func(T)) {
	w.t.Helper()
	if err := api.client.Get(w.t.Context(), keyOf(o), o); err != nil {
		w.t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change(o)
	if err := api.client.Patch(w.t.Context(), o, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// TestRetention: a group keeps its newest snapshots, and nothing is left of a deleted one. Newer snapshots that are not
// in the store do not count as kept.
func TestRetention(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	r := w.start(node)
	w.control()
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		groups := &p.Spec.SnapshotGroupingRules.GroupByLabelValue
		groups.GroupRetentionPolicy = &podsnapshotv1.GroupRetentionPolicy{MaxSnapshotCountPerGroup: 2}
	})
	w.pod(node, "web")
	w.pod(node, "other", func(p *corev1.Pod) { p.Labels[podsnapshotv1.LabelSandboxNameHash] = "b" })
	other := w.complete(w.trigger("o", "other"))
	var made []string
	for i := range 4 {
		made = append(made, w.complete(w.trigger(fmt.Sprint("t", i), "web")).Name)
		time.Sleep(time.Second) // in one second, only the names say which of two is older
	}
	left := func(want int) {
		t.Helper()
		err := w.eventually(func(context.Context) error {
			var left []string
			for _, s := range w.snapshots() {
				if left = append(left, s.Name); s.DeletionTimestamp != nil {
					return fmt.Errorf("%s goes", s.Name)
				}
			}
			if len(left) != want || !strings.Contains(strings.Join(left, " "), other.Name) {
				return fmt.Errorf("%q are left of %q and %s", left, made, other.Name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	left(3)
	w.stores.fail(errors.New("the store is away"))
	for i := range 2 {
		made = append(made, w.complete(w.trigger(fmt.Sprint("away", i), "web")).Name)
	}
	for i := range 2 { // at the second answer, whatever the controller does after the first one is done
		p := w.policy("policy")
		edit(w, p, func(p *podsnapshotv1.PodSnapshotPolicy) {
			p.Spec.RetentionConfig = &podsnapshotv1.RetentionConfig{LastAccessTimeout: fmt.Sprint(i+1, "d")}
		})
		until(w, p, func(p *podsnapshotv1.PodSnapshotPolicy) error {
			if p.Status.ObservedGeneration != p.Generation {
				return errors.New("the controller has not seen the policy")
			}
			return nil
		})
	}
	left(5)
	r.kill()
	w.stores.fail(nil)
	w.start(node) // replicates what is left
	left(3)
	kept := make(map[string]bool)
	for _, s := range w.snapshots() {
		kept[s.Name] = true
		w.replicated(&s)
	}
	for _, name := range made {
		if w.stored(name) != kept[name] ||
			(w.disks[node].manifest(snapshot.Key{Namespace: w.ns, Name: name}) != nil) != kept[name] {
			t.Errorf("PodSnapshot %s is there: %v; its data in the store: %v", name, kept[name], w.stored(name))
		}
	}
}

// TestExpired: a PodSnapshot whose checkpoint failed is deleted after an hour. One that has not expired stays.
func TestExpired(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	r := w.start(node)
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.RetentionConfig = &podsnapshotv1.RetentionConfig{LastAccessTimeout: "3h"}
	})
	w.pod(node, "web")
	fresh, failed := w.replicated(w.complete(w.trigger("t1", "web"))), w.replicated(w.complete(w.trigger("t2", "web")))
	r.kill()
	before := failed.DeepCopy()
	rules.SetProgress(failed, rules.Progress{Failed: "two hours ago"})
	if err := api.client.Status().Patch(t.Context(), failed, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	var now clocks
	now.set(2*time.Hour, 2*time.Hour)
	w.control(now.useToo)
	w.gone(failed)
	if err := api.client.Get(t.Context(), keyOf(fresh), fresh); err != nil || fresh.DeletionTimestamp != nil {
		t.Errorf("a fresh one goes: %v", err)
	}
}

// TestDeletion: deleting a PodSnapshot removes its data everywhere.
func TestDeletion(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.start(a)
	w.start(b)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	w.disks[b].keep(w.disks[a].manifest(k))
	w.delete(s)
	w.gone(s)
	err := w.eventually(func(context.Context) error {
		if w.stored(s.Name) || w.disks[a].manifest(k) != nil || w.disks[b].manifest(k) != nil {
			return errors.New("its data is still there")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// keep gives a node a copy of a snapshot.
func (d *disk) keep(m *storage.Manifest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spool[m.Meta.Key] = m
}

// TestDeletionWhileRead: a node cannot remove its copy of another node's snapshot as long as it is read there. The
// PodSnapshot does not wait for that. The copy goes all the same.
func TestDeletionWhileRead(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.start(a)
	rb := w.start(b)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	w.disks[b].keep(w.disks[a].manifest(k))
	rb.node.need(s.Annotations[podsnapshotv1.AnnotationSnapshotUID], "reader")
	w.delete(s)
	w.gone(s)
	if w.disks[b].manifest(k) == nil {
		t.Error("it was removed while it was read")
	}
	rb.node.wake("reader")
	err := w.eventually(func(context.Context) error { return w.nothingLeft(k, a, b) })
	if err != nil {
		t.Error(err)
	}
}

// TestDeletionWithoutOrigin: the origin is gone, and the controller finishes the deletion. When the origin comes back,
// it removes its copy, and does not create the PodSnapshot again.
func TestDeletionWithoutOrigin(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	ra := w.start(a)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	ra.kill()
	w.control()
	w.delete(s)
	w.gone(s)
	if w.stored(s.Name) {
		t.Error("it is still in the store")
	}
	w.start(a)
	err := w.eventually(func(context.Context) error {
		if w.disks[a].manifest(k) != nil {
			return errors.New("its copy is still on the node")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n := len(w.snapshots()); n > 0 {
		t.Errorf("%d PodSnapshots", n)
	}
}

// TestDeletionWhileTheStoreIsAway: the PodSnapshot says why it still exists, and is deleted as soon as possible.
func TestDeletionWhileTheStoreIsAway(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.start(a)
	w.control()
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	w.stores.fail(errors.New("the store is away"))
	w.delete(s)
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
		if c == nil || c.Reason != podsnapshotv1.ReasonDeleting || !strings.Contains(c.Message, "the store is away") {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	w.stores.fail(nil)
	w.gone(s)
	if w.stored(s.Name) {
		t.Error("it is still in the store")
	}
}

// TestDeletionOfStorageConfig: without its storage config, a stored snapshot is still found and deleted.
func TestDeletionOfStorageConfig(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.start(a)
	w.control()
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	w.delete(&podsnapshotv1.PodSnapshotStorageConfig{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	until(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) error {
		return is(p.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse,
			podsnapshotv1.ReasonStorageConfigNotFound)
	})
	w.delete(s)
	w.gone(s)
	if w.stored(s.Name) {
		t.Error("it is still in the store")
	}
}

// TestNodeLost: the only copy of a snapshot was on a node that has left the cluster.
func TestNodeLost(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.stores.fail(errors.New("away"))
	ra := w.start(a)
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	ra.kill()
	w.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a}})
	w.control()
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse, podsnapshotv1.ReasonFailed)
	})
}

// TestSpoolLost: a node has lost a snapshot that only it had.
func TestSpoolLost(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.stores.fail(errors.New("away"))
	r := w.start(a)
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	r.kill()
	w.disks[a], w.dirs[a] = newDisk(w.stores), t.TempDir()
	w.start(a)
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		return errors.Join(
			is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse, podsnapshotv1.ReasonFailed),
			is(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint, metav1.ConditionTrue, podsnapshotv1.ReasonSucceeded))
	})
}

// TestTriggerOfLostNode: the node that had taken a trigger no longer answers.
func TestTriggerOfLostNode(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	ra := w.start(a, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
			n.die()
			return nil
		}
	})
	w.pod(a, "web")
	tr := w.trigger("t", "web")
	<-ra.boot.Done()
	ra.kill()
	edit(w, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: a}},
		func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
		})
	w.control()
	if got := w.failed(tr); !strings.Contains(got, "node "+a+", which was checkpointing the pod, is gone") {
		t.Errorf("message %q", got)
	}
}

// TestTriggerWithoutAgent: no agent runs on the pod's node. The trigger is old enough for the answer to say so.
func TestTriggerWithoutAgent(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.pod(a, "web")
	w.control()
	tr := w.trigger("t", "web")
	if got := w.failed(tr); !strings.Contains(got, "no agent runs on node "+a) {
		t.Errorf("message %q", got)
	}
}

// TestPolicyStatus: a policy's status says what is wrong with it, and what may be wrong.
func TestPolicyStatus(t *testing.T) {
	w := newWorld(t)
	w.control()
	ready := func(name string, status metav1.ConditionStatus, reason, text string) {
		t.Helper()
		until(w, w.policy(name), func(p *podsnapshotv1.PodSnapshotPolicy) error {
			c := meta.FindStatusCondition(p.Status.Conditions, podsnapshotv1.ConditionReady)
			if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) ||
				p.Status.ObservedGeneration != p.Generation {
				return fmt.Errorf("condition %+v", c)
			}
			return nil
		})
	}
	ready("policy", metav1.ConditionTrue, podsnapshotv1.ReasonValid, "can be used")
	storeless := w.policy("storeless")
	storeless.Spec.StorageConfigName, storeless.Spec.Selector.MatchLabels = w.ns+"-later", map[string]string{"app": "x"}
	w.create(storeless)
	ready("storeless", metav1.ConditionFalse, podsnapshotv1.ReasonStorageConfigNotFound,
		"there is no PodSnapshotStorageConfig")
	w.create(&podsnapshotv1.PodSnapshotStorageConfig{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-later"},
		Spec: podsnapshotv1.PodSnapshotStorageConfigSpec{SnapshotStorageConfig: podsnapshotv1.SnapshotStorageConfig{
			Dir: &podsnapshotv1.DirStorage{Path: "/srv/x"},
		}},
	})
	ready("storeless", metav1.ConditionTrue, podsnapshotv1.ReasonValid, "can be used")
	beside := w.policy("beside")
	beside.Spec.Selector.MatchLabels = map[string]string{"tier": "y"}
	w.create(beside)
	ready("beside", metav1.ConditionTrue, podsnapshotv1.ReasonValid,
		"a pod that policy, storeless also selects is not checkpointed")
	ready("policy", metav1.ConditionTrue, podsnapshotv1.ReasonValid, "a pod that beside also selects is not checkpointed")
}

// TestStorageConfigStatus: a store that does not answer makes the config, and its policies, not Ready.
func TestStorageConfigStatus(t *testing.T) {
	w := newWorld(t)
	w.stores.fail(errors.New("permission denied"))
	c := w.control()
	config := &podsnapshotv1.PodSnapshotStorageConfig{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	until(w, config, func(x *podsnapshotv1.PodSnapshotStorageConfig) error {
		c := meta.FindStatusCondition(x.Status.Conditions, podsnapshotv1.ConditionReady)
		if c == nil || c.Reason != podsnapshotv1.ReasonStoreUnavailable || !strings.Contains(c.Message, "permission denied") {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	until(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) error {
		return is(p.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse,
			podsnapshotv1.ReasonStorageConfigNotReady)
	})
	c.end()
	w.stores.fail(nil)
	w.control()
	until(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) error {
		return is(p.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue, podsnapshotv1.ReasonValid)
	})
}
