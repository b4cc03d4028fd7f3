package kube_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// TestHostileOrigin: a snapshot of another cluster is not restored, nor one of a namespace that was deleted, though
// there is a PodSnapshot with its name. One that does not say where it is from is.
func TestHostileOrigin(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	w.start(a)
	rb := w.start(b)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	stored, err := w.stores.get(w.location(), snapshot.Key{Namespace: w.ns, Name: s.Name})
	if err != nil || stored.Meta.Origin.Cluster != clusterID(t) || stored.Meta.Origin.NamespaceUID == "" {
		t.Fatalf("%+v, %v", stored, err)
	}
	for name, x := range map[string]struct {
		change func(*snapshot.Origin)
		want   string // in the refusal; empty: it is restored
	}{
		"as it is":          {func(*snapshot.Origin) {}, ""},
		"unsaid":            {func(o *snapshot.Origin) { o.Cluster, o.NamespaceUID = "", "" }, ""},
		"another cluster":   {func(o *snapshot.Origin) { o.Cluster = "another" }, "made in another cluster"},
		"another namespace": {func(o *snapshot.Origin) { o.NamespaceUID = "former" }, "made in another namespace"},
	} {
		changed := *stored
		x.change(&changed.Meta.Origin)
		if err := w.stores.put(w.location(), &changed); err != nil {
			t.Fatal(err)
		}
		got, err := choose(t, rb, w.pod(b, strings.ReplaceAll(name, " ", "-")), enough)
		switch {
		case x.want == "" && (err != nil || got.Snapshot.Name != s.Name):
			t.Errorf("%s: %+v, %v", name, got, err)
		case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestHostileNamespaceMadeAgain: a snapshot that has no PodSnapshot yet when its namespace is deleted gets none in a
// namespace that is made with the same name.
func TestHostileNamespaceMadeAgain(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	refused := make(chan struct{}, 1)
	r := w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/podsnapshots") {
					return next.RoundTrip(r)
				}
				select {
				case refused <- struct{}{}:
				default:
				}
				return nil, errors.New("away")
			})
		})
	})
	w.pod(a, "web")
	w.trigger("t", "web")
	if err := w.eventually(func(context.Context) error {
		if len(w.disks[a].journaled()) == 0 || w.disks[a].journaled()[0].Stage != journal.StageReplicated {
			return errors.New("not replicated")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	<-refused
	r.kill()
	former := w.disks[a].journaled()[0].Key
	w.again()
	w.start(a)
	w.pod(a, "web")
	if s := w.complete(w.trigger("t2", "web")); s.Name == former.Name {
		t.Error("the new trigger got the former snapshot")
	}
	for _, s := range w.snapshots() {
		if s.Name == former.Name {
			t.Errorf("the former snapshot %s is in the new namespace", former)
		}
	}
}

// journaled returns the requests of a disk, oldest first.
func (d *disk) journaled() (out []journal.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range d.order {
		out = append(out, d.journal[id])
	}
	return out
}

// again deletes the world's namespace, as the controllers of a cluster do, and makes one with the same name.
func (w *world) again() {
	w.t.Helper()
	ctx := w.t.Context()
	w.deletePod("web")
	w.delete(&podsnapshotv1.PodSnapshotManualTrigger{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "t"}})
	w.delete(w.policy("policy"))
	for _, name := range []string{"default", "other"} {
		w.delete(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}})
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	w.delete(ns)
	if err := api.client.Get(ctx, keyOf(ns), ns); err != nil {
		w.t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if err := api.client.SubResource("finalize").Update(ctx, ns); err != nil {
		w.t.Fatal(err)
	}
	w.gone(ns)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	for _, name := range []string{"default", "other"} {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}})
	}
	w.create(w.policy("policy"))
}
