package kube_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"diapause.dev/agent/kube"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// central are the stores of a world as its controller sees them. It implements kube.Stores.
type central struct{ *fakeNode }

// Shared reports whether no test has made the store a node's own disk.
func (central) Shared(location string) bool {
	_, own := ownDisks.Load(location)
	return !own && location != ownStore
}

// Remove removes a snapshot from a store, and from nothing else.
func (c central) Remove(ctx context.Context, r snapshots.Removal) error {
	if r.Exact {
		return c.removeStored(ctx, r.ID.Key, r.ID.UID, r.Location)
	}
	return c.disk.stores.remove(r.Location, r.ID.Key, r.ID.UID)
}

// Note reads from a real store, or from a store of the test.
func (c central) Note(ctx context.Context, location, name string) ([]byte, error) {
	if s, ok := realStores.Load(location); ok {
		return s.(*storage.Store).Note(ctx, name)
	}
	s := c.disk.stores
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notes[location+" "+name], s.err
}

// SetNote writes into a real store, or into a store of the test.
func (c central) SetNote(ctx context.Context, location, name string, data []byte) error {
	if s, ok := realStores.Load(location); ok {
		return s.(*storage.Store).SetNote(ctx, name, data)
	}
	s := c.disk.stores
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.notes[location+" "+name] = data
	}
	return s.err
}

// controls is a controller that runs in the cluster.
type controls struct {
	name string
	boot context.Context
	end  func() // ends the controller, and waits until it has ended
}

// control starts a controller. Edit may change how it reaches the API server.
func (w *world) control(edit ...func(*kube.ControllerConfig)) *controls {
	w.t.Helper()
	w.unattended()
	life, end := context.WithCancel(context.Background())
	w.controllers++
	name := w.ns + "-controller-" + string(rune('a'+w.controllers))
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("controller", name)
	}
	cfg := kube.ControllerConfig{
		RestConfig: rest.CopyConfig(api.Config), Name: name, NodeName: w.ns + "-controllers", Namespace: w.ns,
		LeaseName: w.lease, Store: ownStore, Logger: log,
	}
	for _, e := range edit {
		e(&cfg)
	}
	stores := central{&fakeNode{disk: newDisk(w.stores), boot: context.Background()}}
	c, err := kube.NewController(cfg, stores)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(life) }()
	stop := sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			w.t.Errorf("controller: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return &controls{name: name, boot: life, end: stop}
}

// TestLeaseGoesOn: when the controller that does the cluster's duties ends, it gives the Lease back, and another one
// takes them over.
func TestLeaseGoesOn(t *testing.T) {
	w := newWorld(t)
	first := w.control()
	w.leads()
	w.control()
	first.end()
	w.create(w.policy("second"))
	until(w, w.policy("second"), func(p *podsnapshotv1.PodSnapshotPolicy) error {
		return is(p.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue, podsnapshotv1.ReasonValid)
	})
}

// TestLeaseGivenBack: a controller that ends holds the Lease no longer.
func TestLeaseGivenBack(t *testing.T) {
	w := newWorld(t)
	c := w.control()
	w.leads()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: w.lease}}
	get := func() string {
		if err := api.client.Get(t.Context(), keyOf(lease), lease); err != nil {
			t.Fatal(err)
		}
		if lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	if got := get(); got != c.name {
		t.Errorf("it is held by %q", got)
	}
	c.end()
	if got := get(); got != "" {
		t.Errorf("afterwards it is held by %q", got)
	}
}

// TestHostileAgentHasNoDuties: an agent neither deletes PodSnapshots nor contends for the Lease, whatever it is asked.
func TestHostileAgentHasNoDuties(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var mu sync.Mutex
	var did []string
	r := w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if r.Method == http.MethodDelete || r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/leases") {
					did = append(did, r.Method+" "+r.URL.Path)
				}
				return next.RoundTrip(r)
			})
		})
	})
	w.control()
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	if _, err := r.Remove(t.Context(), snapshot.Key{Namespace: w.ns, Name: s.Name}); err != nil {
		t.Error(err)
	}
	w.gone(s)
	mu.Lock()
	defer mu.Unlock()
	if len(did) > 0 {
		t.Errorf("it has done %q", did)
	}
}
