package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/test/bed"
)

// world is a test's own namespace in the cluster, with a policy.
type world struct {
	testing.TB
	*cluster
	ctx       context.Context
	namespace string
}

// policy selects the pods of [world.pod] and makes a group of each sandbox.
const policy = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata: {name: policy, namespace: %s}
spec:
  storageConfigName: storage
  selector: {matchLabels: {app: workload}}
  triggerConfig: {type: manual, postCheckpoint: resume}
  snapshotGroupingRules: {groupByLabelValue: {labels: [agents.x-k8s.io/sandbox-name-hash]}}
`

// begin makes a world for a test. All that is in it is deleted with the test. A test that may run beside others calls
// t.Parallel first: its time begins here.
func begin(t testing.TB) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	w := &world{TB: t, cluster: shared, ctx: ctx}
	w.namespace = w.newNamespace(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")))
	w.apply(fmt.Sprintf(policy, w.namespace))
	return w
}

// newNamespace makes a namespace that ends with the test, and returns its name, which begins as given. The rest is
// random: the same test may have run before, and its namespace takes a while to go.
func (w *world) newNamespace(name string) string {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}
	w.must(w.client.Create(w.ctx, ns))
	w.Cleanup(func() { w.end(ns) })
	w.must(until(w.ctx, func() error {
		return w.client.Get(w.ctx, client.ObjectKey{Namespace: ns.Name, Name: "default"}, new(corev1.ServiceAccount))
	}))
	return ns.Name
}

// goneLimit is how long a namespace may take to go: its pods end, and its snapshots are removed.
const goneLimit = 2 * time.Minute

// leaving are the namespaces that have been deleted and may still be there.
var leaving struct {
	sync.Mutex
	all []*corev1.Namespace
}

func (w *world) end(ns *corev1.Namespace) {
	ctx, cancel := context.WithTimeout(context.Background(), goneLimit)
	defer cancel()
	w.plain(ctx, ns.Name)
	if w.Failed() {
		w.Log(w.report(ctx, ns.Name))
		var logs []string
		for _, n := range w.Nodes() {
			logs = append(logs, n.Path("/var/log"))
		}
		bed.ShowDeaths(w, time.Now().Add(-limit), logs...)
	}
	if err := w.client.Delete(ctx, ns); err != nil {
		w.Error(err)
	}
	leaving.Lock()
	defer leaving.Unlock()
	leaving.all = append(leaving.all, ns)
}

// left waits until all namespaces that were deleted are gone, with their pods. If one does not go in time, it returns
// an error.
func (c *cluster) left() error {
	ctx, cancel := context.WithTimeout(context.Background(), goneLimit)
	defer cancel()
	leaving.Lock()
	all := leaving.all
	leaving.all = nil
	leaving.Unlock()
	for _, ns := range all {
		err := until(ctx, func() error {
			err := c.client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("namespace %s is still there: %w", ns.Name, err)
		})
		if err != nil {
			return fmt.Errorf("%w\n%s", err, c.reportTo(context.Background(), logsDir, ns.Name, ns.Name))
		}
	}
	return nil
}

func (w *world) apply(manifest string) {
	w.Helper()
	w.must(w.Apply(w.ctx, manifest))
}

// kubectl runs kubectl in the namespace and returns what it prints.
func (w *world) kubectl(args ...string) string {
	w.Helper()
	out, err := w.Kubectl(w.ctx, append([]string{"--namespace=" + w.namespace}, args...)...)
	w.must(err)
	return out
}

// event returns an error unless a pod has an event that is accepted.
func (w *world) event(pod string, accepted func(*corev1.Event) bool) error {
	var l corev1.EventList
	if err := w.client.List(w.ctx, &l, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	var others []string
	for i := range l.Items {
		e := &l.Items[i]
		if e.InvolvedObject.Name == pod && accepted(e) {
			return nil
		}
		others = append(others, fmt.Sprintf("%s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return fmt.Errorf("%w: there are the events\n%s", errNotYet, strings.Join(others, "\n"))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// poll is how often an object is looked at that is about to change. Each look is a request to the API server, of which
// every test that waits makes some.
const poll = 100 * time.Millisecond

// until is [bed.Until] with that pause.
func until(ctx context.Context, f func() error) error { return bed.UntilEvery(ctx, poll, f) }

func (w *world) eventually(what string, f func() error) {
	w.Helper()
	if err := until(w.ctx, f); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}
