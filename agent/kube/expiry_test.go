package kube_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// TestUnused: an unused snapshot expires with its data. One that was restored from meanwhile stays until it expires
// itself. Time goes faster for the agent and the controller. The test has 24 minutes, as they see it, until it does.
func TestUnused(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var now clocks
	metrics := prometheus.NewRegistry()
	r := w.start(a, now.use)
	c := w.control(now.useToo, func(c *kube.ControllerConfig) { c.Metrics = metrics })
	w.pod(a, "web")
	idle, used := w.replicated(w.complete(w.trigger("t1", "web"))), w.replicated(w.complete(w.trigger("t2", "web")))
	now.set(25*time.Minute, 25*time.Minute)
	w.sees(metrics, func(skew float64) bool { return math.Abs(skew) < 10 })
	k := func(s *podsnapshotv1.PodSnapshot) snapshot.Key { return snapshot.Key{Namespace: w.ns, Name: s.Name} }

	pod := w.pod(a, "again", name(used.Name))
	choice, err := choose(t, r, pod, enough)
	if err != nil || choice.Snapshot != k(used) {
		t.Fatalf("%+v, %v", choice, err)
	}
	if err := r.Restored(t.Context(), refOf(pod), choice.Snapshot); err != nil {
		t.Error(err)
	}
	until(w, used, func(s *podsnapshotv1.PodSnapshot) error {
		if s.Status.LastAccessTime == nil {
			return errors.New("it does not count as used")
		}
		return nil
	})
	now.set(31*time.Minute, 31*time.Minute)
	w.sees(metrics, func(skew float64) bool { return math.Abs(skew) < 10 })
	w.expireAfter("30min")
	w.gone(idle)
	if err := w.nothingLeft(k(idle), a); err != nil {
		t.Errorf("the one that nobody used: %v", err)
	}
	if err := api.client.Get(t.Context(), keyOf(used), used); err != nil || used.DeletionTimestamp != nil ||
		!w.stored(used.Name) {
		t.Errorf("the one that was restored from goes too: %v", err)
	}

	r.kill()
	c.end()
	now.set(time.Hour, time.Hour)
	w.start(a, now.use)
	w.control(now.useToo)
	w.gone(used)
	err = w.eventually(func(context.Context) error { return w.nothingLeft(k(used), a) })
	if err != nil {
		t.Errorf("the one that was restored from: %v", err)
	}
}

// TestHostileAccessTime: a node has written that a snapshot was used in the far future. It counts as used now.
func TestHostileAccessTime(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.start(a)
	w.control()
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	before := s.DeepCopy()
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Status.LastAccessTime = new(metav1.NewTime(far))
	if err := api.client.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if used := s.Status.LastAccessTime; used == nil || used.After(time.Now().Add(time.Hour)) {
			return fmt.Errorf("last used at %v", used)
		}
		return nil
	})
}
