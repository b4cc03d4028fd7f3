package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// nothingLeft returns an error if anything is left of a snapshot, in the store or on a node.
func (w *world) nothingLeft(k snapshot.Key, nodes ...string) error {
	if w.stored(k.Name) {
		return errors.New("it is still in the store")
	}
	for _, n := range nodes {
		if w.disks[n].manifest(k) != nil {
			return fmt.Errorf("it is still on node %s", n)
		}
	}
	return nil
}

// TestRemove: a snapshot that is removed on its node is gone from the cluster. Another node says where to remove it.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	ra, rb := w.start(a), w.start(b)
	w.control()
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	known, err := rb.Remove(t.Context(), k)
	if !known || !errors.Is(err, errkind.ErrElsewhere) || !strings.Contains(err.Error(), "made on node "+a) ||
		!strings.Contains(err.Error(), "kubectl --namespace="+w.ns+" delete podsnapshot "+s.Name) {
		t.Errorf("on another node: %v, %v", known, err)
	}
	if err := api.client.Get(t.Context(), keyOf(s), s); err != nil || s.DeletionTimestamp != nil || !w.stored(s.Name) {
		t.Errorf("it goes: %v", err)
	}
	if known, err := ra.Remove(t.Context(), k); !known || err != nil {
		t.Errorf("on its node: %v, %v", known, err)
	}
	if err := w.nothingLeft(k, a); err != nil || len(w.snapshots()) > 0 {
		t.Errorf("%v; %d PodSnapshots", err, len(w.snapshots()))
	}
	if known, err := ra.Remove(t.Context(), k); known || err != nil {
		t.Errorf("what is no more: %v, %v", known, err)
	}
}

// TestRemoveBesideOthers: a removal goes on if somebody changes the PodSnapshot at that moment, such as the controller,
// which confirms it.
func TestRemoveBesideOthers(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var s *podsnapshotv1.PodSnapshot
	r := w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPatch && carries(t, req, podsnapshotv1.AnnotationRemove) {
					edit(w, s, func(s *podsnapshotv1.PodSnapshot) { s.Labels = map[string]string{"changed": "meanwhile"} })
				}
				return next.RoundTrip(req)
			})
		})
	})
	w.control()
	w.pod(a, "web")
	s = w.replicated(w.complete(w.trigger("t", "web")))
	if known, err := r.Remove(t.Context(), snapshot.Key{Namespace: w.ns, Name: s.Name}); !known || err != nil {
		t.Errorf("%v, %v", known, err)
	}
}

// TestRemoveWhileAway: while the API server is unreachable, nothing is decided. While the store is unreachable, the
// PodSnapshot says so, and is deleted later.
func TestRemoveWhileAway(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var away atomic.Bool
	r := w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(failing(func(u *url.URL) bool { return away.Load() && strings.Contains(u.Path, "/podsnapshots/") }))
	})
	w.control()
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	away.Store(true)
	if known, err := r.Remove(t.Context(), k); known || !errors.Is(err, errkind.ErrClusterAway) {
		t.Errorf("the API server is away: %v, %v", known, err)
	}
	away.Store(false)
	w.stores.fail(errors.New("the store is away"))
	ctx, cancel := context.WithCancelCause(t.Context())
	removed := make(chan error)
	go func() {
		_, err := r.Remove(ctx, k)
		removed <- err
	}()
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if err := is(s.Status.Conditions, podsnapshotv1.ConditionReady, "False", podsnapshotv1.ReasonDeleting); err != nil {
			return err
		}
		return nil
	})
	cancel(errors.New("who asked has gone"))
	if err := <-removed; err == nil || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("the store is away: %v", err)
	}
	w.stores.fail(nil)
	w.gone(s)
	if err := w.nothingLeft(k, a); err != nil {
		t.Error(err)
	}
}

// TestDeletedWhileStored: a PodSnapshot is deleted while its node is storing it in a bucket. The controller waits for
// that node longer than for one that has stored it, and then removes all.
func TestDeletedWhileStored(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	storing := holdAt(stepReplicate)
	release := sync.OnceFunc(func() { close(storing.release) })
	w.start(a, storing.set)
	t.Cleanup(release)
	w.control()
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	<-storing.reached
	w.delete(s)
	for s.DeletionTimestamp == nil || time.Since(s.DeletionTimestamp.Time) < 6*time.Second { // twice what others get
		if err := api.client.Get(t.Context(), keyOf(s), s); err != nil {
			t.Fatalf("while it is stored: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	release()
	w.gone(s)
	if err := w.nothingLeft(snapshot.Key{Namespace: w.ns, Name: s.Name}, a); err != nil {
		t.Error(err)
	}
}

// TestHostileNodeRemovesOthers: a node that was taken over says that its PodSnapshot is what another cluster has
// stored, and has it deleted. The controller leaves that alone.
func TestHostileNodeRemovesOthers(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.start(a)
	w.control()
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	const theirs = "gs://theirs/x"
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	m, err := w.stores.get(w.location(), k)
	if err != nil {
		t.Fatal(err)
	}
	other := *m
	other.Meta.Origin.Cluster = "another"
	if err := w.stores.put(theirs, &other); err != nil {
		t.Fatal(err)
	}
	before := s.DeepCopy()
	s.Status.StorageStatus.GCS.ObservedGCSPath = theirs + "/" + w.ns + "/snapshots/" + s.Name
	if err := api.client.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.delete(s)
	w.gone(s)
	if _, err := w.stores.get(theirs, k); err != nil {
		t.Errorf("what another cluster has made: %v", err)
	}
}

// TestRemoveKilled: the agent dies after it has asked the controller for the deletion of the PodSnapshot.
func TestRemoveKilled(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var removing atomic.Bool
	r := w.start(a, func(n *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPatch && removing.Load() {
					n.die()
				}
				return next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
			})
		})
	})
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer context.AfterFunc(r.boot, cancel)()
	removing.Store(true)
	if _, err := r.Remove(ctx, k); err == nil {
		t.Error("it was removed by a dead agent")
	}
	r.kill()
	if err := api.client.Get(t.Context(), keyOf(s), s); err != nil || s.DeletionTimestamp != nil || !w.stored(s.Name) {
		t.Errorf("after the agent's death: %v, deleted %v, stored %v", err, s.DeletionTimestamp, w.stored(s.Name))
	}
	w.control()
	w.start(a)
	w.gone(s)
	if err := w.nothingLeft(k, a); err != nil {
		t.Error(err)
	}
}
