package kube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
	"diapause.dev/api/snapshot"
	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

func TestMain(m *testing.M) { bed.Main(m, tools.Kubernetes) }

// limit bounds every wait in a test.
const limit = 3 * time.Minute

// api is the API server of all tests of this package, because starting one takes seconds.
var api struct {
	sync.Mutex
	*bed.API
	client client.WithWatch
}

// serve starts the API server if there is none, and installs the definitions.
func serve(t *testing.T) {
	t.Helper()
	api.Lock()
	defer api.Unlock()
	if api.API != nil {
		return
	}
	a, err := bed.StartAPI(context.Background()) // ends with the program
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../manifests/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Apply(t.Context(), string(b)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=30s", "crd",
		"--all"); err != nil {
		t.Fatal(err)
	}
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme,
		podsnapshotv1.AddToScheme, sleepv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	if api.client, err = client.NewWithWatch(a.Config, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	api.API = a
}

// podUIDs are the pods that tests have made.
var podUIDs sync.Map

func podByUID(uid string) snapshot.PodRef {
	v, _ := podUIDs.Load(uid)
	ref, _ := v.(snapshot.PodRef)
	return ref
}

// ownStore is the location of the agents' own store.
const ownStore = "dir:/own"

// world is a namespace with the agents of some nodes. Everything except what is tested is fake.
type world struct {
	t      *testing.T
	ns     string
	lease  string
	stores *stores
	disks  map[string]*disk
	dirs   map[string]string

	controllers int    // that were started
	unattended  func() // ends what stands in for a controller
}

// newWorld makes a namespace with a policy for all pods with app=web, which groups by Sandbox.
func newWorld(t *testing.T) *world {
	t.Helper()
	serve(t)
	w := &world{t: t, stores: newStores(), disks: make(map[string]*disk), dirs: make(map[string]string)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	w.create(ns)
	w.ns, w.lease = ns.Name, ns.Name
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "default"}})
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "other"}})
	w.create(&podsnapshotv1.PodSnapshotStorageConfig{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns},
		Spec: podsnapshotv1.PodSnapshotStorageConfigSpec{SnapshotStorageConfig: podsnapshotv1.SnapshotStorageConfig{
			GCS: &podsnapshotv1.GCSStorage{Bucket: "bucket", Path: w.ns},
		}},
	})
	w.create(w.policy("policy"))
	life, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.standIn(life)
	}()
	w.unattended = sync.OnceFunc(func() {
		end()
		<-done
	})
	t.Cleanup(w.unattended)
	return w
}

// standIn stands in for a controller, until ctx is done: it confirms every PodSnapshot, and ends deletions from which
// the origin node has withdrawn. The API server may be away.
func (w *world) standIn(ctx context.Context) {
	const confirm = `{"metadata":{"annotations":{"` + podsnapshotv1.AnnotationConfirmed + `":"` +
		podsnapshotv1.Confirmed + `"}}}`
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		var all podsnapshotv1.PodSnapshotList
		if api.client.List(ctx, &all, client.InNamespace(w.ns)) != nil {
			continue
		}
		for i := range all.Items {
			s := &all.Items[i]
			if !rules.Decided(s) {
				_ = api.client.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(confirm))) // else the next time
			}
			if s.DeletionTimestamp != nil && s.Annotations[podsnapshotv1.AnnotationWithdrawn] != "" {
				w.removeStored(ctx, s)
			}
		}
	}
}

// removeStored removes a PodSnapshot's data from the store, and then its finalizer. What fails is tried again.
func (w *world) removeStored(ctx context.Context, s *podsnapshotv1.PodSnapshot) {
	if w.stores.remove(w.location(), snapshot.Key{Namespace: s.Namespace, Name: s.Name}, "") == nil {
		const release = `{"metadata":{"finalizers":null}}`
		_ = api.client.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(release)))
	}
}

func (w *world) policy(name string) *podsnapshotv1.PodSnapshotPolicy {
	return &podsnapshotv1.PodSnapshotPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: podsnapshotv1.PodSnapshotPolicySpec{
			StorageConfigName: w.ns, Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			TriggerConfig: podsnapshotv1.TriggerConfig{Type: podsnapshotv1.TriggerManual},
			SnapshotGroupingRules: &podsnapshotv1.SnapshotGroupingRules{
				GroupByLabelValue: podsnapshotv1.GroupByLabelValue{Labels: []string{podsnapshotv1.LabelSandboxNameHash}},
			},
		},
	}
}

// location is where the world's policy stores snapshots.
func (w *world) location() string { return "gs://bucket/" + w.ns }

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := api.client.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// node makes a node and its Lease.
func (w *world) node(name string) string {
	w.t.Helper()
	name = w.ns + "-" + name
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now().Add(time.Hour)))},
	}
	w.create(lease)
	edit(w, lease, func(l *coordinationv1.Lease) { // the API server then does not note when the Lease was renewed
		l.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	})
	w.disks[name], w.dirs[name] = newDisk(w.stores), w.t.TempDir()
	return name
}

// What an agent asks its cluster, and tells it, by the part of the agent that does.
type (
	storesCluster = snapshots.Cluster
	livesCluster  = lives.Cluster
	sleepsCluster = sleep.Cluster
	idleCluster   = admission.Cluster
)

// running is an agent that runs in the cluster.
type running struct {
	kube.Decisions
	storesCluster
	livesCluster
	sleepsCluster
	idleCluster
	name string // of its node
	node *fakeNode
	boot context.Context // done when the agent is killed
	kill func()          // ends the agent as SIGKILL would, and waits until it has ended
}

// start starts the agent of a node. Edit may change how its checkpoints go, and how it reaches the API server.
func (w *world) start(node string, edit ...func(*fakeNode, *kube.Config)) *running {
	w.t.Helper()
	boot, kill := context.WithCancel(context.Background())
	n := &fakeNode{
		disk: w.disks[node], boot: boot, die: kill, running: make(map[string]int),
		facts: snapshot.Facts{Architecture: "amd64", RunscVersion: "r1"},
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", node)
	}
	cfg := kube.Config{
		RestConfig: rest.CopyConfig(api.Config), NodeName: node, Namespace: w.ns, LeaseName: w.lease,
		StateDir: w.dirs[node], Store: ownStore, Logger: log,
	}
	for _, e := range edit {
		e(n, &cfg)
	}
	cfg.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return killed{boot, next} })
	earlier, _ := n.Requests() // does not fail
	conn, err := kube.Connect(cfg, earlier)
	if err != nil {
		w.t.Fatal(err)
	}
	n.cluster = conn.Services()
	policies := conn.Policies(kube.IdleNode{Sleeps: n, Asleep: n.AsleepPod, Ready: n, Meter: unused{node: n}})
	c, err := kube.New(conn, kube.Node{
		Checkpoints: n, Snapshots: n, Facts: n.Facts, Needs: n, Ended: ended{n}, Sleeps: n, Waker: n, Waiting: n.Waiting,
		Policies: policies,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(boot) }()
	n.recover()
	stop := sync.OnceFunc(func() {
		kill()
		if err := <-done; err != nil {
			w.t.Errorf("agent of %s: %v", node, err)
		}
	})
	w.t.Cleanup(stop)
	return &running{
		Decisions: c.Decisions(), storesCluster: n.cluster.Stores, livesCluster: n.cluster.Lives,
		sleepsCluster: n.cluster.Sleeps, idleCluster: policies, name: node, node: n, boot: boot, kill: stop,
	}
}

// pod makes a pod that runs on a node.
func (w *world) pod(node, name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: name,
			Labels: map[string]string{"app": "web", podsnapshotv1.LabelSandboxNameHash: "0a0a0a0a"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app:1"}},
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(0)),
		},
	}
	for _, e := range edit {
		e(p)
	}
	phase := p.Status.Phase
	w.create(p)
	podUIDs.Store(string(p.UID), snapshot.PodRef{Namespace: w.ns, Name: name, UID: string(p.UID)})
	p.Status.Phase = corev1.PodRunning
	if phase != "" {
		p.Status.Phase = phase
	}
	if err := api.client.Status().Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) deletePod(name string) {
	w.t.Helper()
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}, client.GracePeriodSeconds(0))
}

func (w *world) delete(o client.Object, opts ...client.DeleteOption) {
	w.t.Helper()
	if err := api.client.Delete(w.t.Context(), o, opts...); err != nil {
		w.t.Fatal(err)
	}
}

func refOf(p *corev1.Pod) snapshot.PodRef {
	return snapshot.PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
}

// trigger makes a trigger.
func (w *world) trigger(name, pod string) *podsnapshotv1.PodSnapshotManualTrigger {
	w.t.Helper()
	t := &podsnapshotv1.PodSnapshotManualTrigger{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec:       podsnapshotv1.PodSnapshotManualTriggerSpec{TargetPod: pod},
	}
	w.create(t)
	return t
}

// until waits until f returns nil for an object, as read from the API server.
func until[T client.Object](w *world, o T, f func(T) error) T {
	w.t.Helper()
	err := w.eventually(func(ctx context.Context) error {
		if err := api.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return f(o)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// eventually calls f until it returns nil. If that takes too long, it returns an error with the last one of f.
func (w *world) eventually(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	return bed.Until(ctx, func() error { return f(ctx) })
}

// is returns an error unless a condition has that status and reason.
func is(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		return fmt.Errorf("condition %s is %+v, want %s %s", kind, c, status, reason)
	}
	return nil
}

// complete waits until a trigger is Complete, and returns the PodSnapshot as it is then.
func (w *world) complete(t *podsnapshotv1.PodSnapshotManualTrigger) *podsnapshotv1.PodSnapshot {
	w.t.Helper()
	until(w, t, func(t *podsnapshotv1.PodSnapshotManualTrigger) error {
		if c := meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered); c != nil &&
			c.Status == metav1.ConditionFalse {
			w.t.Fatalf("trigger %s failed: %s", t.Name, c.Message)
		}
		return is(t.Status.Conditions, podsnapshotv1.ConditionTriggered, metav1.ConditionTrue, podsnapshotv1.ReasonComplete)
	})
	if t.Status.SnapshotCreated == nil {
		w.t.Fatal("complete without a snapshot")
	}
	s := w.snapshot(t.Status.SnapshotCreated.Name)
	if err := api.client.Get(w.t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		w.t.Fatal(err)
	}
	if err := is(s.Status.Conditions, podsnapshotv1.ConditionReady, metav1.ConditionTrue,
		podsnapshotv1.ReasonAllSnapshotsAvailable); err != nil {
		w.t.Errorf("Complete before Ready: %v", err)
	}
	return s
}

// failed waits until a trigger has failed, and returns its message.
func (w *world) failed(t *podsnapshotv1.PodSnapshotManualTrigger) string {
	w.t.Helper()
	until(w, t, func(t *podsnapshotv1.PodSnapshotManualTrigger) error {
		return is(t.Status.Conditions, podsnapshotv1.ConditionTriggered, metav1.ConditionFalse, podsnapshotv1.ReasonFailed)
	})
	return meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered).Message
}

func (w *world) snapshot(name string) *podsnapshotv1.PodSnapshot {
	return &podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
}

// snapshots returns all PodSnapshots.
func (w *world) snapshots() []podsnapshotv1.PodSnapshot {
	w.t.Helper()
	var all podsnapshotv1.PodSnapshotList
	if err := api.client.List(w.t.Context(), &all, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	return all.Items
}

// replicated waits until a PodSnapshot says that it is in the store.
func (w *world) replicated(s *podsnapshotv1.PodSnapshot) *podsnapshotv1.PodSnapshot {
	w.t.Helper()
	return until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		return is(s.Status.Conditions, podsnapshotv1.ConditionStorageReplicated, metav1.ConditionTrue,
			podsnapshotv1.ReasonSucceeded)
	})
}

// gone waits until an object no longer exists.
func (w *world) gone(o client.Object) {
	w.t.Helper()
	err := w.eventually(func(ctx context.Context) error {
		err := api.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("%s is still there: %v", o.GetName(), o.GetFinalizers()))
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// event waits for an event on a pod whose note contains text.
func (w *world) event(pod *corev1.Pod, kind, text string) {
	w.t.Helper()
	err := w.eventually(func(ctx context.Context) error {
		var all corev1.EventList
		if err := api.client.List(ctx, &all, client.InNamespace(w.ns)); err != nil {
			return err
		}
		var seen []string
		for _, e := range all.Items {
			seen = append(seen, e.Type+" "+e.Reason+" "+e.Message)
			if e.InvolvedObject.UID == pod.UID && e.Type == kind && e.Reason == podsnapshotv1.EventReason &&
				strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("no %s event on pod %s says %q: %q", kind, pod.Name, text, seen)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
