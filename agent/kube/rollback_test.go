package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// The tests bring back what a backup of etcd would have of the controller's Lease and of PodSnapshots.

// line waits until the controller has counted further than before, and returns the annotation that says how far.
func (w *world) line(before string) string {
	w.t.Helper()
	var now string
	until(w, w.leaseOf(), func(l *coordinationv1.Lease) error {
		if now = l.Annotations[podsnapshotv1.AnnotationLine]; now == before {
			return fmt.Errorf("the line is still %q", now)
		}
		return nil
	})
	return now
}

func (w *world) leaseOf() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: w.lease}}
}

// annotate sets an annotation of the Lease.
func (w *world) annotate(name, value string) {
	w.t.Helper()
	l := w.leaseOf()
	edit(w, l, func(l *coordinationv1.Lease) { metav1.SetMetaDataAnnotation(&l.ObjectMeta, name, value) })
}

// vanish has a PodSnapshot disappear without a deletion.
func (w *world) vanish(s *podsnapshotv1.PodSnapshot) {
	w.t.Helper()
	edit(w, s, func(s *podsnapshotv1.PodSnapshot) { s.Finalizers = nil })
	w.delete(s)
	w.gone(s)
}

// looks counts how often a client reads the controller's Lease. The holder reads it only if it conflicts.
type looks struct{ n atomic.Int64 }

func (l *looks) count(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/leases/") {
			l.n.Add(1)
		}
		return next.RoundTrip(r)
	})
}

// more waits for some more of them.
func (l *looks) more(w *world) {
	w.t.Helper()
	until := l.n.Load() + 8
	if err := w.eventually(func(context.Context) error {
		if n := l.n.Load(); n < until {
			return fmt.Errorf("%d looks of %d", n, until)
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// TestRolledBack: a cluster that was brought back from an older backup removes nothing from a store that was noted
// later, whoever counts on, until an administrator says so. Other stores are swept.
func TestRolledBack(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	s, root := w.realStore()
	var seen looks
	metrics := prometheus.NewRegistry()
	control := func(c *kube.ControllerConfig) {
		c.OrphanAge = 200 * time.Millisecond
		c.RestConfig.Wrap(seen.count)
		c.Metrics = metrics
	}
	first := w.control(control)
	backup := w.line("")
	k := snapshot.Key{Namespace: w.ns, Name: "newer"}
	named := w.snapshot(k.Name)
	named.Spec.PolicyName = "policy"
	w.create(named)
	put := func(s *storage.Store, k snapshot.Key) {
		w.store(s, snapshot.Meta{
			Key: k, UID: "u", Created: time.Now(),
			Origin: snapshot.Origin{Pod: "web", Node: a, Cluster: clusterID(t)},
		})
	}
	put(s, k)
	w.line(backup)
	first.end()
	w.annotate(podsnapshotv1.AnnotationLine, backup)
	w.vanish(named)

	metrics = prometheus.NewRegistry()
	w.control(control)
	stopped := until(w, w.leaseOf(), func(l *coordinationv1.Lease) error {
		if why := l.Annotations[podsnapshotv1.AnnotationNotSwept]; !strings.Contains(why, root) {
			return fmt.Errorf("not swept: %q", why)
		}
		return nil
	})
	line := stopped.Annotations[podsnapshotv1.AnnotationLine]
	for _, name := range []string{"a", "b", "c"} { // so it counts past what the store has seen
		w.create(&podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: named.Spec})
		line = w.line(line)
	}
	fresh, _ := w.realStore()
	other := snapshot.Key{Namespace: w.ns, Name: "other"}
	put(fresh, other)
	if err := w.eventually(func(ctx context.Context) error { return has(ctx, fresh) }); err != nil {
		t.Errorf("a store without a mark: %v", err)
	}
	seen.more(w)
	if err := has(t.Context(), s, k); err != nil {
		t.Error(err)
	}
	w.nodeEvent("Not swept: store ")
	if n, err := metric(metrics, "diapause_sweeps_stopped"); n < 1 {
		t.Errorf("the metric says %v, %v", n, err)
	}

	w.annotate(podsnapshotv1.AnnotationSweepAgain, time.Now().UTC().Add(time.Second).Format(time.RFC3339))
	if err := w.eventually(func(ctx context.Context) error { return has(ctx, s) }); err != nil {
		t.Error(err)
	}
	until(w, w.leaseOf(), func(l *coordinationv1.Lease) error {
		if why := l.Annotations[podsnapshotv1.AnnotationNotSwept]; strings.Contains(why, root) {
			return fmt.Errorf("not swept: %q", why)
		}
		return nil
	})
}

// TestRolledBackNode: an agent keeps what it has of a PodSnapshot that is missing because the cluster was brought back
// from an older backup, also after it was started anew, until an administrator says that it is to be removed.
func TestRolledBackNode(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	first := w.control()
	backup := w.line("")
	r := w.start(a)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	first.end()
	w.control()
	w.line(backup)
	r.kill()

	r = w.start(a) // it looks at its start
	w.remembers(a)
	w.annotate(podsnapshotv1.AnnotationLine, backup)
	w.vanish(s)
	w.nodeEvent("Not swept: this node")
	kept := func() {
		t.Helper()
		if r.NotSwept() == "" {
			t.Error("it does not say that nothing is removed")
		}
		if local, err := r.node.HasLocal(t.Context(), k); err != nil || !local {
			t.Errorf("the node has it: %v, %v", local, err)
		}
	}
	kept()
	r.kill()
	var seen looks
	r = w.start(a, func(_ *fakeNode, c *kube.Config) { c.RestConfig.Wrap(seen.count) })
	if err := w.eventually(func(context.Context) error {
		if r.NotSwept() == "" || seen.n.Load() < 2 { // the look at its start, and that of the snapshot
			return errors.New("not looked at")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	kept()
	r.kill()
	w.annotate(podsnapshotv1.AnnotationSweepAgain, time.Now().UTC().Add(time.Second).Format(time.RFC3339))
	r = w.start(a)
	if err := w.eventually(func(ctx context.Context) error {
		if local, err := r.node.HasLocal(ctx, k); err != nil || local {
			return fmt.Errorf("the node has it: %v, %w", local, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestRolledBackEtcd: when an older backup of etcd is brought back, with everything running, a node keeps the snapshot
// that is newer, its store is not swept, and the PodSnapshot that was deleted since says that its data is lost.
func TestRolledBackEtcd(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	first := w.control()
	r := w.start(a)
	w.pod(a, "web")
	deleted := w.replicated(w.complete(w.trigger("t1", "web")))
	before := w.line("")
	backup := t.TempDir()
	if err := api.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	w.delete(deleted)
	w.gone(deleted)
	newer := w.replicated(w.complete(w.trigger("t2", "web")))
	first.end()
	var back atomic.Bool
	w.control(func(c *kube.ControllerConfig) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if back.Load() && caches(r) {
					return nil, unix.ECONNREFUSED
				}
				return next.RoundTrip(r)
			})
		})
	})
	w.line(before)
	r.kill()
	r = w.start(a) // it looks at its start
	w.remembers(a)

	back.Store(true)
	if err := api.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	until(w, w.leaseOf(), func(l *coordinationv1.Lease) error {
		if why := l.Annotations[podsnapshotv1.AnnotationNotSwept]; !strings.Contains(why, w.location()) {
			return fmt.Errorf("not swept: %q", why)
		}
		return nil
	})
	w.nodeEvent("Not swept: this node")
	w.dataLost(w.snapshot(deleted.Name))
	if all := w.snapshots(); len(all) != 1 {
		t.Errorf("the backup has %d PodSnapshots", len(all))
	}
	k := snapshot.Key{Namespace: w.ns, Name: newer.Name}
	if local, err := r.node.HasLocal(t.Context(), k); err != nil || !local {
		t.Errorf("the node has the newer one: %v, %v", local, err)
	}
	if _, err := w.stores.get(w.location(), k); err != nil {
		t.Error(err)
	}
}

// caches reports whether a request is one of a cache of PodSnapshots.
func caches(r *http.Request) bool {
	q := r.URL.Query()
	return strings.HasSuffix(r.URL.Path, "/podsnapshots") && (q.Has("watch") || q.Has("limit"))
}

// remembers waits until a node's agent has seen how far the cluster has come.
func (w *world) remembers(node string) {
	w.t.Helper()
	err := w.eventually(func(ctx context.Context) error {
		l := w.leaseOf()
		if err := api.client.Get(ctx, keyOf(l), l); err != nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(w.dirs[node], "kube", "line"))
		if err != nil {
			return err
		}
		var line, mark struct {
			Count int64 `json:"count"`
		}
		err = errors.Join(json.Unmarshal([]byte(l.Annotations[podsnapshotv1.AnnotationLine]), &line),
			json.Unmarshal(b, &mark))
		if err == nil && mark != line {
			err = fmt.Errorf("the cluster is at %v, its node at %v", line, mark)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// nodeEvent waits for a warning on a node, in the namespace of events on nodes.
func (w *world) nodeEvent(note string) {
	w.t.Helper()
	err := w.eventually(func(ctx context.Context) error {
		var all corev1.EventList
		if err := api.client.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Type == corev1.EventTypeWarning && strings.HasPrefix(e.InvolvedObject.Name, w.ns) &&
				strings.Contains(e.Message, note) {
				return nil
			}
		}
		return fmt.Errorf("no event says %q", note)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
