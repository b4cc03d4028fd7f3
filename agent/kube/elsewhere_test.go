package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// unreplicated is a snapshot on node a whose first replication has failed, and a pod on node b that waits for the
// snapshot.
type unreplicated struct {
	*world
	origin  *corev1.Pod
	waits   *corev1.Pod
	a, b    *running
	s       *podsnapshotv1.PodSnapshot
	refused chan error // of the pod that waits
}

func newUnreplicated(t *testing.T) *unreplicated {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	u := &unreplicated{world: w, b: w.start(b), refused: make(chan error, 1)}
	u.a = w.start(a, func(n *fakeNode, _ *kube.Config) {
		n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
			if s == stepReplicate {
				return errors.New("the store is away")
			}
			return nil
		}
	})
	u.origin = w.pod(a, "web")
	u.s = w.confirmed(w.complete(w.trigger("t", "web")))
	u.waits = w.pod(b, "again", name(u.s.Name))
	if err := hopeless(t, u.b, u.waits); !strings.Contains(err.Error(), "its replication has not ended") {
		t.Fatalf("before anything failed: %v", err)
	}
	go func() {
		_, err := u.b.Choose(t.Context(), refOf(u.waits), unlived)
		u.refused <- err
	}()
	return u
}

// fails makes the request end as it does on node a when a replication can never succeed.
func (u *unreplicated) fails(why string, damaged bool) {
	all, _ := u.a.node.Requests() // does not fail
	q := all[0]
	q.Stage, q.Error = journal.StageFailed, why
	if damaged { // makes the spool say that it does not have the snapshot
		u.a.node.forget(q.Key, q.SnapshotUID)
	}
	u.a.node.advance(q)
}

// stays checks conditions now, after the PodSnapshot is reconciled again, and after a restart of the agent.
func (u *unreplicated) stays(check func(*podsnapshotv1.PodSnapshot) error) {
	u.t.Helper()
	until(u.world, u.s, check)
	for i, step := range []func(){
		func() {
			edit(u.world, u.s, func(s *podsnapshotv1.PodSnapshot) {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, "look",
					"again")
			})
		},
		func() {
			u.a.kill()
			u.a = u.start(u.a.name)
			u.complete(u.trigger("later", "web")) // by then the agent has reconciled everything
		},
	} {
		step()
		if err := api.client.Get(u.t.Context(), keyOf(u.s), u.s); err != nil {
			u.t.Fatal(err)
		}
		if err := check(u.s); err != nil {
			u.t.Errorf("after step %d: %v", i, err)
		}
	}
}

// TestNeverReplicated: if a snapshot cannot get into the store, its PodSnapshot says so and keeps saying so. A pod
// elsewhere that waits for the snapshot is told.
func TestNeverReplicated(t *testing.T) {
	u := newUnreplicated(t)
	u.fails("another snapshot has this name in the store", false)
	if err := <-u.refused; !rules.Refused(err) ||
		!strings.Contains(err.Error(), "another snapshot has this name in the store") {
		t.Errorf("the pod that waits hears %v", err)
	}
	u.event(u.origin, corev1.EventTypeWarning, "can be restored only on node "+u.a.name+
		": another snapshot has this name in the store")
	u.stays(func(s *podsnapshotv1.PodSnapshot) error {
		c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated)
		if err := is(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse,
			podsnapshotv1.ReasonFailed); err != nil {
			return err
		}
		if c.Message != "another snapshot has this name in the store" {
			return fmt.Errorf("message %q", c.Message)
		}
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
			podsnapshotv1.ReasonAllSnapshotsAvailable)
	})
}

// TestDamaged: a snapshot that is found to be damaged before it is in the store has failed.
func TestDamaged(t *testing.T) {
	u := newUnreplicated(t)
	u.fails("a pack is damaged", true)
	if err := <-u.refused; !rules.Refused(err) || !strings.Contains(err.Error(), "a pack is damaged") {
		t.Errorf("the pod that waits hears %v", err)
	}
	u.event(u.origin, corev1.EventTypeWarning, "is lost: a pack is damaged")
	u.stays(func(s *podsnapshotv1.PodSnapshot) error {
		if !strings.Contains(rules.WhyNotReady(s), "a pack is damaged") {
			return fmt.Errorf("conditions %+v", s.Status.Conditions)
		}
		return is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionFalse, podsnapshotv1.ReasonFailed)
	})
}

// TestStoreInTheWay: while a snapshot is not in the store, its PodSnapshot says why.
func TestStoreInTheWay(t *testing.T) {
	u := newUnreplicated(t)
	all, _ := u.a.node.Requests() // does not fail
	q := all[0]
	q.Waiting = "403: may not write"
	u.a.node.advance(q)
	until(u.world, u.s, func(s *podsnapshotv1.PodSnapshot) error {
		c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated)
		if !strings.HasSuffix(c.Message, "the last attempt failed: 403: may not write") ||
			c.Reason != podsnapshotv1.ReasonAwaitingCheckpoint {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	u.a.node.replicate(q)
	if err := <-u.refused; err != nil {
		t.Error(err)
	}
}

// TestNodeLocal: a snapshot in a store that only its node can see is restored there, even if it is no longer in the
// spool. It is not restored anywhere else, and does not claim to be on every node.
func TestNodeLocal(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	ownDisks.Store(w.location(), w.disks[a])
	ra, rb := w.start(a), w.start(b)
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	check := func(s *podsnapshotv1.PodSnapshot) error {
		if s.Status.StorageStatus == nil || !rules.Ready(s) {
			return fmt.Errorf("status %+v", s.Status)
		}
		return is(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse,
			podsnapshotv1.ReasonNodeLocal)
	}
	until(w, s, check)
	if _, err := choose(t, rb, w.pod(b, "other", name(s.Name)), enough); !rules.Refused(err) ||
		!strings.Contains(err.Error(), "a disk of node "+a) {
		t.Errorf("elsewhere: %v", err)
	}
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	// The spool needed space.
	if err := ra.node.forget(k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID]); err != nil {
		t.Fatal(err)
	}
	if got, err := choose(t, ra, w.pod(a, "again", name(s.Name)), enough); err != nil || got.Snapshot != k {
		t.Errorf("on its node: %+v, %v", got, err)
	}
	ra.kill()
	w.start(a)
	w.complete(w.trigger("later", "web")) // by then the agent has reconciled everything
	if err := api.client.Get(t.Context(), keyOf(s), s); err != nil {
		t.Fatal(err)
	}
	if err := check(s); err != nil {
		t.Errorf("after a restart of the agent: %v", err)
	}
}

// TestNodeLocalOnce: what an earlier version wrote about such a snapshot is corrected.
func TestNodeLocalOnce(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	r.kill()
	ownDisks.Store(w.location(), w.disks[a])
	w.start(a)
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		return is(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse,
			podsnapshotv1.ReasonNodeLocal)
	})
}

// TestChosenUID: a choice identifies the snapshot by its UID, and not only by its name.
func TestChosenUID(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	got, err := choose(t, r, w.pod(a, "again"), enough)
	if want := s.Annotations[podsnapshotv1.AnnotationSnapshotUID]; err != nil || want == "" || got.UID != want {
		t.Errorf("%+v, %v; want UID %q", got, err, want)
	}
}
