package kube_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
)

// TestAPIAway: the API server is unreachable while a pod is captured. Afterwards everything is reported.
func TestAPIAway(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	capture := holdAt(stepCapture)
	w.start(a, capture.set)
	w.pod(a, "web")
	tr := w.trigger("t", "web")
	<-capture.reached
	api.Server.Kill()
	close(capture.release)
	if err := api.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.replicated(w.complete(tr))
}

// TestAPIAwayAtStart: an agent that starts while the API server is unreachable begins to work once it is back.
func TestAPIAwayAtStart(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.pod(a, "web")
	tr := w.trigger("t", "web")
	api.Server.Kill()
	w.start(a)
	if err := api.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.replicated(w.complete(tr))
}

// TestConflict: somebody changes a trigger just when an agent writes its status.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	tr := w.trigger("t", "web")
	var mu sync.Mutex
	conflicts := 0
	w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/podsnapshotmanualtriggers/") {
					mu.Lock()
					defer mu.Unlock()
					if conflicts++; conflicts%2 == 1 {
						patch := client.RawPatch(types.MergePatchType,
							[]byte(`{"metadata":{"labels":{"touched":"`+strings.Repeat("x", conflicts)+`"}}}`))
						if err := api.client.Patch(r.Context(), tr.DeepCopy(), patch); err != nil {
							return nil, err
						}
					}
				}
				return next.RoundTrip(r)
			})
		})
	})
	w.pod(a, "web")
	w.replicated(w.complete(tr))
	for k, n := range w.disks[a].captures {
		if n != 1 {
			t.Errorf("%s was captured %d times", k, n)
		}
	}
	if mu.Lock(); conflicts < 4 {
		t.Errorf("%d writes", conflicts)
	}
	mu.Unlock()
}
