package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
)

// realStores are the stores of tests that need real ones, by location.
var realStores sync.Map

// ownDisks says which stores are on a node's own disk, invisible to other nodes, by location.
var ownDisks sync.Map

// Stored lists a real store, or a store of the test.
func (n *fakeNode) Stored(ctx context.Context, location string, fn func(storage.Listed) error) error {
	if s, ok := realStores.Load(location); ok {
		return s.(*storage.Store).List(ctx, "", fn)
	}
	for _, k := range n.disk.stores.keys(location) {
		if err := fn(storage.Listed{Key: k, Modified: time.Now()}); err != nil {
			return err
		}
	}
	return nil
}

// StoredManifest reads from a real store, or from a store of the test.
func (n *fakeNode) StoredManifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	if s, ok := realStores.Load(location); ok {
		return s.(*storage.Store).Manifest(ctx, k)
	}
	return n.disk.stores.get(location, k)
}

// removeStored removes from a real store, or from a store of the test.
func (n *fakeNode) removeStored(ctx context.Context, k snapshot.Key, uid, location string) error {
	m, err := n.StoredManifest(ctx, k, location)
	if err != nil || m.Meta.UID != uid {
		return err
	}
	if s, ok := realStores.Load(location); ok {
		return s.(*storage.Store).Remove(ctx, k)
	}
	return n.disk.stores.remove(location, k, uid)
}

// OwnDisk reports whether a test has made the store a node's own disk.
func (n *fakeNode) OwnDisk(location string) bool {
	disk, ok := ownDisks.Load(location)
	return ok && disk == n.disk
}

// SweepStore sweeps a real store.
func (n *fakeNode) SweepStore(ctx context.Context, location string) (storage.SweepResult, error) {
	if s, ok := realStores.Load(location); ok {
		return s.(*storage.Store).Sweep(ctx, storage.SweepOptions{})
	}
	return storage.SweepResult{}, nil
}

// realStore makes a store in a directory, and a storage config that names it.
func (w *world) realStore() (s *storage.Store, root string) {
	w.t.Helper()
	root = w.t.TempDir()
	b, err := dir.Open(root)
	if err != nil {
		w.t.Fatal(err)
	}
	if s, err = storage.Open(w.t.Context(), b, storage.Options{}); err != nil {
		w.t.Fatal(err)
	}
	realStores.Store("dir:"+root, s)
	w.create(&podsnapshotv1.PodSnapshotStorageConfig{
		ObjectMeta: metav1.ObjectMeta{GenerateName: w.ns + "-"},
		Spec: podsnapshotv1.PodSnapshotStorageConfigSpec{SnapshotStorageConfig: podsnapshotv1.SnapshotStorageConfig{
			Dir: &podsnapshotv1.DirStorage{Path: root},
		}},
	})
	return s, root
}

// store stores a snapshot.
func (w *world) store(s *storage.Store, m snapshot.Meta) {
	w.t.Helper()
	out, err := s.NewWriter(w.t.Context(), m.Key, storage.WriterOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := out.File("pages").Chunk([]byte(m.Name)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := out.Commit(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

// has returns an error unless a store contains exactly these snapshots.
func has(ctx context.Context, s *storage.Store, want ...snapshot.Key) error {
	left := make(map[snapshot.Key]bool)
	for _, k := range want {
		left[k] = true
	}
	err := s.List(ctx, "", func(e storage.Listed) error {
		if !left[e.Key] {
			return fmt.Errorf("%s is stored", e.Key)
		}
		delete(left, e.Key)
		return nil
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%v are not stored any more", left)
	}
	return err
}

// clusterID returns the id in the cluster's snapshots.
func clusterID(t *testing.T) string {
	t.Helper()
	var ns corev1.Namespace
	if err := api.client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
		t.Fatal(err)
	}
	return string(ns.UID)
}

// leads waits until one of a world's controllers does the cluster's duties.
func (w *world) leads() {
	w.t.Helper()
	until(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) error {
		return is(p.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue, podsnapshotv1.ReasonValid)
	})
}

// TestSweep: of the snapshots that only a store has, a sweep removes those of this cluster that nothing can know of
// any more, and no others.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	a, silent := w.node("a"), w.node("silent")
	edit(w, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: silent}},
		func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
		})
	s, root := w.realStore()
	w.control(func(c *kube.ControllerConfig) { c.OrphanAge = 200 * time.Millisecond })
	w.leads()

	id, key := clusterID(t), func(name string) snapshot.Key { return snapshot.Key{Namespace: w.ns, Name: name} }
	put := func(k snapshot.Key, cluster, node string, made time.Time) {
		w.store(s, snapshot.Meta{
			Key: k, UID: k.Name, Created: made,
			Origin: snapshot.Origin{Pod: "web", Node: node, Cluster: cluster},
		})
	}
	named := w.snapshot("b-named")
	named.Spec.PolicyName = "policy"
	w.create(named)
	put(key("b-named"), id, a, time.Now())
	put(key("c-foreign"), "another", a, time.Now())
	put(key("d-of-none"), "", a, time.Now())
	put(key("e-left"), id, a, time.Now().Add(-time.Hour)) // before the Lease was made
	put(key("f-silent"), id, silent, time.Now())
	put(key("g-damaged"), id, a, time.Now())
	damage(t, filepath.Join(root, w.ns, "snapshots", "g-damaged", "manifest"))
	gone := snapshot.Key{Namespace: "z-no-such-namespace", Name: "x"}
	put(key("y-orphan"), id, a, time.Now())
	put(gone, id, "no-such-node", time.Now()) // the last one that a sweep checks

	stay := []snapshot.Key{
		key("b-named"), key("c-foreign"), key("d-of-none"), key("e-left"), key("f-silent"),
		key("g-damaged"),
	}
	swept := func(want ...snapshot.Key) {
		t.Helper()
		if err := w.eventually(func(ctx context.Context) error { return has(ctx, s, want...) }); err != nil {
			t.Fatal(err)
		}
	}
	swept(stay...)
	w.delete(named)
	swept(stay[1:]...)
	w.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: silent}})
	swept(key("c-foreign"), key("d-of-none"), key("e-left"), key("g-damaged"))
}

// damage spoils a file.
func damage(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		b[len(b)/2] ^= 0xff
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSweepNeedsTheAPI: nothing is removed while the API server does not say what exists.
func TestSweepNeedsTheAPI(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	s, _ := w.realStore()
	asked := make(chan struct{}, 1)
	w.control(func(c *kube.ControllerConfig) {
		c.OrphanAge = 200 * time.Millisecond
		c.RestConfig.Wrap(failing(func(u *url.URL) bool {
			if !strings.HasSuffix(u.Path, "/namespaces/"+w.ns+"/podsnapshots") ||
				u.Query().Get("fieldSelector") != "metadata.name=orphan" {
				return false
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			return true
		}))
	})
	w.leads()
	k := snapshot.Key{Namespace: w.ns, Name: "orphan"}
	w.store(s, snapshot.Meta{
		Key: k, UID: "u", Created: time.Now(),
		Origin: snapshot.Origin{Pod: "web", Node: a, Cluster: clusterID(t)},
	})
	for range 3 { // so that two sweeps have passed it
		<-asked
	}
	if err := has(t.Context(), s, k); err != nil {
		t.Error(err)
	}
}

// TestSweepOwnDisk: an agent sweeps the stores that only it can see, and no others. The controller leaves those alone.
func TestSweepOwnDisk(t *testing.T) {
	w := newWorld(t)
	b := w.node("b")
	s, root := w.realStore()
	shared, _ := w.realStore()
	w.control()
	w.leads()
	k, made := snapshot.Key{Namespace: w.ns, Name: "orphan"}, time.Now()
	for _, s := range []*storage.Store{shared, s} {
		w.store(s, snapshot.Meta{
			Key: k, UID: "u", Created: made,
			Origin: snapshot.Origin{Pod: "web", Node: b, Cluster: clusterID(t)},
		})
	}
	ownDisks.Store("dir:"+root, w.disks[b])
	w.start(b, func(_ *fakeNode, c *kube.Config) { c.OrphanAge = 200 * time.Millisecond })
	if err := w.eventually(func(ctx context.Context) error { return has(ctx, s) }); err != nil {
		t.Fatal(err)
	}
	if err := has(t.Context(), shared, k); err != nil {
		t.Errorf("the shared one: %v", err)
	}
}

// TestIdentity: a snapshot names its cluster.
func TestIdentity(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	d, err := r.Describe(t.Context(), refOf(w.pod(a, "web")))
	if err != nil || d.Cluster != clusterID(t) {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestStores: an agent knows the stores that storage configs name.
func TestStores(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.node("a"))
	err := w.eventually(func(ctx context.Context) error {
		all, err := r.Stores(ctx)
		if err == nil && (all[0] != "dir:/own" || !slices.Contains(all, w.location())) {
			err = fmt.Errorf("stores %q", all)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// failing is a transport that fails requests to certain addresses.
func failing(which func(*url.URL) bool) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if which(r.URL) {
				return nil, errors.New("away")
			}
			return next.RoundTrip(r)
		})
	}
}
