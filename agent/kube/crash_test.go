package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// killer kills an agent at its n-th write to the API server, before or after the server has it. Writes of the Lease
// and of events do not count.
type killer struct {
	next  http.RoundTripper
	die   func()
	after bool

	mu   *sync.Mutex
	left *int
}

func (k killer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") || strings.Contains(r.URL.Path, "/events") {
		return k.next.RoundTrip(r)
	}
	k.mu.Lock()
	*k.left--
	now := *k.left == 0
	k.mu.Unlock()
	if !now {
		return k.next.RoundTrip(r)
	}
	if k.after {
		if resp, err := k.next.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}
	k.die()
	return nil, errKilled
}

// ended checks what must hold for a trigger however often its agent was killed. It has ended. If it is Complete, its
// snapshot is Ready and restorable. At most one snapshot was captured.
func (w *world) ended(t *podsnapshotv1.PodSnapshotManualTrigger, d *disk) {
	w.t.Helper()
	until(w, t, func(t *podsnapshotv1.PodSnapshotManualTrigger) error {
		if !rules.Ended(t) {
			return fmt.Errorf("trigger %s has not ended: %+v", t.Name, t.Status)
		}
		return nil
	})
	captures := 0
	for _, n := range d.captures {
		captures += n
	}
	if captures > 1 {
		w.t.Errorf("%d captures for one trigger: %v", captures, d.captures)
	}
	c := meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered)
	if c.Reason != podsnapshotv1.ReasonComplete {
		w.t.Logf("%s: %s", t.Name, c.Message)
		if len(d.captures) > 0 {
			w.t.Errorf("trigger %s failed with a snapshot: %s", t.Name, c.Message)
		}
		return
	}
	s := w.replicated(w.complete(t))
	if d.manifest(snapshot.Key{Namespace: w.ns, Name: s.Name}) == nil {
		w.t.Errorf("PodSnapshot %s cannot be restored", s.Name)
	}
	if all := w.snapshots(); len(all) != 1 {
		w.t.Errorf("%d PodSnapshots", len(all))
	}
}

// TestKilledAtEachWrite: an agent is killed at each of its writes to the API server. The next one finishes what it
// left.
func TestKilledAtEachWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n, done := 1, false; !done; n++ {
			t.Run(fmt.Sprintf("%d/%v", n, after), func(t *testing.T) {
				w := newWorld(t)
				node := w.node("a")
				w.pod(node, "web")
				left := n
				var mu sync.Mutex
				r := w.start(node, func(f *fakeNode, c *kube.Config) {
					c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
						return killer{next: next, die: f.die, after: after, mu: &mu, left: &left}
					})
				})
				tr := w.trigger("t", "web")
				err := w.eventually(func(ctx context.Context) error {
					if err := api.client.Get(ctx, keyOf(tr), tr); err != nil {
						return err
					}
					if !rules.Ended(tr) && r.boot.Err() == nil {
						return fmt.Errorf("trigger has not ended, agent still lives")
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if r.boot.Err() == nil { // there were fewer writes, unless the replication is still to be written
					w.replicatedBy(r, w.complete(tr))
					done = r.boot.Err() == nil
				}
				r.kill()
				w.start(node)
				w.ended(tr, w.disks[node])
			})
			if t.Failed() {
				return
			}
		}
	}
}

// replicatedBy waits until an agent has written that a PodSnapshot is in the store, or has been killed.
func (w *world) replicatedBy(r *running, s *podsnapshotv1.PodSnapshot) {
	w.t.Helper()
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if r.boot.Err() == nil && !rules.Replicated(s) {
			return fmt.Errorf("PodSnapshot %s is not in the store", s.Name)
		}
		return nil
	})
}

// TestKilledAtEachStep: an agent is killed at each step of a checkpoint.
func TestKilledAtEachStep(t *testing.T) {
	for _, at := range []step{stepAccept, stepCapture, stepReplicate} {
		t.Run(string(at), func(t *testing.T) {
			w := newWorld(t)
			node := w.node("a")
			w.pod(node, "web")
			r := w.start(node, func(f *fakeNode, _ *kube.Config) {
				f.at = func(_ context.Context, s step, _ checkpoint.Options) error {
					if s == at {
						f.die()
					}
					return nil
				}
			})
			tr := w.trigger("t", "web")
			<-r.boot.Done()
			r.kill()
			w.start(node)
			w.ended(tr, w.disks[node])
			if at != stepCapture {
				w.complete(tr)
			}
		})
	}
}

// TestKilledThenPodGone: a trigger was taken. When the agent comes back, the trigger's pod is gone, or another one
// has its name.
func TestKilledThenPodGone(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			w := newWorld(t)
			node := w.node("a")
			w.pod(node, "web")
			r := w.start(node, func(f *fakeNode, _ *kube.Config) {
				f.at = func(_ context.Context, s step, _ checkpoint.Options) error {
					f.die()
					return nil
				}
			})
			tr := w.trigger("t", "web")
			<-r.boot.Done()
			r.kill()
			w.deletePod("web")
			if again {
				w.pod(node, "web")
			}
			w.start(node)
			if got := w.failed(tr); !strings.Contains(got, "was gone before it was checkpointed") {
				t.Errorf("message %q", got)
			}
		})
	}
}

// TestPodGoneAfterCapture: an agent is killed right after the capture, and the pod is gone when it comes back. The
// snapshot is complete all the same.
func TestPodGoneAfterCapture(t *testing.T) {
	w := newWorld(t)
	node := w.node("a")
	w.pod(node, "web")
	r := w.start(node, func(f *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return refused{next: next, method: http.MethodPost, path: "/podsnapshots"}
		})
		f.at = func(_ context.Context, s step, _ checkpoint.Options) error {
			if s == stepReplicate {
				f.die()
			}
			return nil
		}
	})
	tr := w.trigger("t", "web")
	<-r.boot.Done()
	r.kill()
	w.deletePod("web")
	w.start(node)
	s := w.complete(tr)
	if s.Spec.PolicyName != "policy" || s.Labels[podsnapshotv1.LabelSandboxNameHash] != "0a0a0a0a" ||
		s.Annotations[podsnapshotv1.AnnotationServiceAccount] != "default" ||
		s.Annotations[podsnapshotv1.AnnotationStorageConfig] != w.ns {
		t.Errorf("PodSnapshot %+v", s)
	}
}

// refused fails all requests with a method and a path that ends like this.
type refused struct {
	next         http.RoundTripper
	method, path string
}

func (f refused) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == f.method && strings.HasSuffix(r.URL.Path, f.path) {
		return nil, fmt.Errorf("%s %s: no way", r.Method, r.URL.Path)
	}
	return f.next.RoundTrip(r)
}
