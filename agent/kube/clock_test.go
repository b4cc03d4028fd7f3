package kube_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// clocks are the clocks of a node and of the API server, as an agent sees them: how far they are ahead of this
// machine's.
type clocks struct{ node, server atomic.Int64 }

func (c *clocks) set(node, server time.Duration) {
	c.node.Store(int64(node))
	c.server.Store(int64(server))
}

// mute has the API server no longer say what time it is.
const mute = time.Duration(1<<63 - 1)

// use has an agent use these clocks.
func (c *clocks) use(_ *fakeNode, cfg *kube.Config) {
	cfg.Now = c.now
	c.hear(cfg.RestConfig)
}

// useToo has a controller use these clocks.
func (c *clocks) useToo(cfg *kube.ControllerConfig) {
	cfg.Now = c.now
	c.hear(cfg.RestConfig)
}

// now is the node's clock.
func (c *clocks) now() time.Time { return time.Now().Add(time.Duration(c.node.Load())) }

// hear has answers bear the time of the API server's clock.
func (c *clocks) hear(rc *rest.Config) {
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil {
				c.date(answer.Header)
			}
			return answer, err
		})
	})
}

// date sets the Date of an answer.
func (c *clocks) date(h http.Header) {
	by := time.Duration(c.server.Load())
	if by == mute {
		h.Del("Date")
		return
	}
	h.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
}

const year = 365 * 24 * time.Hour

// TestHostileClock: while the clock of the controller's node and that of the API server disagree,
// nothing is deleted for its age, be it a PodSnapshot or what only a store has. When they agree again, it is.
func TestHostileClock(t *testing.T) {
	type offsets struct{ node, server time.Duration }
	late := offsets{30 * time.Minute, 30 * time.Minute} // what was made at the beginning has expired
	for name, c := range map[string]struct{ first, then offsets }{
		"Ahead":         {offsets{node: year}, offsets{node: year}},
		"Behind":        {offsets{node: -year}, offsets{2*time.Hour - year, 2 * time.Hour}},
		"JumpsAhead":    {offsets{}, offsets{node: year}},
		"JumpsBack":     {offsets{}, offsets{2*time.Hour - year, 2 * time.Hour}},
		"ServerAhead":   {offsets{}, offsets{server: year}},
		"ServerUnknown": {offsets{server: mute}, offsets{server: mute}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.node("a")
			store, _ := w.realStore()
			var now clocks
			now.set(c.first.node, c.first.server)
			metrics := prometheus.NewRegistry()
			w.start(a, now.use)
			w.control(now.useToo, func(cfg *kube.ControllerConfig) {
				cfg.OrphanAge, cfg.Metrics, cfg.NodeName = 200*time.Millisecond, metrics, a
			})
			w.pod(a, "web")
			s := w.replicated(w.complete(w.trigger("t", "web")))
			now.set(c.then.node, c.then.server)
			w.sees(metrics, func(skew float64) bool { return !(math.Abs(skew) < 3600) }) // it is NaN if it is not known
			orphan := snapshot.Key{Namespace: w.ns, Name: "orphan"}
			w.store(store, snapshot.Meta{
				Key: orphan, UID: "u", Created: time.Now(), Origin: snapshot.Origin{Node: a, Cluster: clusterID(t)},
			})
			w.expireAfter("20min")
			w.refuses(a, metrics)
			if err := has(t.Context(), store, orphan); err != nil {
				t.Error(err)
			}
			if err := api.client.Get(t.Context(), keyOf(s), s); err != nil || s.DeletionTimestamp != nil ||
				!w.stored(s.Name) {
				t.Errorf("the snapshot goes: %v", err)
			}
			now.set(late.node, late.server)
			w.sees(metrics, func(skew float64) bool { return math.Abs(skew) < 60 })
			w.expireAfter("21min")
			w.gone(s)
			if err := w.eventually(func(ctx context.Context) error { return has(ctx, store) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// expireAfter has snapshots expire that were not used for that long.
func (w *world) expireAfter(timeout string) {
	w.t.Helper()
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.RetentionConfig = &podsnapshotv1.RetentionConfig{LastAccessTimeout: timeout}
	})
}

// refuses waits until a node's agent has refused several times to delete what is old, and has said so.
func (w *world) refuses(node string, metrics *prometheus.Registry) {
	w.t.Helper()
	err := w.eventually(func(ctx context.Context) error {
		if n, err := metric(metrics, "diapause_clock_refusals_total"); err != nil || n < 4 {
			return errors.Join(err, fmt.Errorf("%v refusals", n))
		}
		var all corev1.EventList
		if err := api.client.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == node && e.Type == corev1.EventTypeWarning &&
				strings.Contains(e.Message, "Nothing is deleted for its age") {
				return nil
			}
		}
		return errors.New("no event says so")
	})
	if err != nil {
		w.t.Error(err)
	}
}

// sees waits until an agent sees such a difference of the clocks, in seconds.
func (w *world) sees(metrics *prometheus.Registry, such func(skew float64) bool) {
	w.t.Helper()
	err := w.eventually(func(context.Context) error {
		skew, err := metric(metrics, "diapause_clock_skew_seconds")
		if err == nil && !such(skew) {
			err = fmt.Errorf("the clocks differ by %v s", skew)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// metric reads one of an agent's metrics.
func metric(metrics *prometheus.Registry, name string) (float64, error) {
	families, err := metrics.Gather()
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue(), nil
		}
	}
	return 0, errors.Join(err, errors.New("no such metric"))
}

// TestHostileKubeletClock: a node whose clock is behind is not taken for silent, and one whose clock is ahead is not
// taken for alive: it counts when the API server has heard from it.
func TestHostileKubeletClock(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var now clocks
	w.control(now.useToo)
	w.leads()
	renew := func(node string, at time.Time) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}}
		w.delete(lease)
		lease.ResourceVersion = ""
		lease.Spec.RenewTime = new(metav1.NewMicroTime(at))
		w.create(lease)
	}
	w.pod(a, "web")
	renew(a, time.Now().Add(-year))
	taken := w.trigger("t1", "web")
	take := func(t *podsnapshotv1.PodSnapshotManualTrigger) {
		t.Status.NodeName = a
		meta.SetStatusCondition(&t.Status.Conditions, metav1.Condition{
			Type: podsnapshotv1.ConditionTriggered, Status: metav1.ConditionUnknown,
			Reason: podsnapshotv1.ReasonCheckpointing, LastTransitionTime: metav1.NewTime(time.Now().Add(-year)),
		})
	}
	w.takes(taken, take)
	probe := w.trigger("t2", "no-such-pod") // when it is answered, the duties have looked at both
	w.failed(probe)
	if err := api.client.Get(t.Context(), keyOf(taken), taken); err != nil ||
		meta.IsStatusConditionFalse(taken.Status.Conditions, podsnapshotv1.ConditionTriggered) {
		t.Errorf("the node that is behind: %+v, %v", taken.Status.Conditions, err)
	}
	renew(a, time.Now().Add(year))
	now.set(2*time.Minute, 2*time.Minute)
	if got := w.failed(taken); !strings.Contains(got, "is gone or does not answer") {
		t.Errorf("the node that is ahead: %q", got)
	}
}

// takes has the status of a trigger say that a node's agent has taken it.
func (w *world) takes(t *podsnapshotv1.PodSnapshotManualTrigger, take func(*podsnapshotv1.PodSnapshotManualTrigger)) {
	w.t.Helper()
	before := t.DeepCopy()
	take(t)
	if err := api.client.Status().Patch(w.t.Context(), t, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}
