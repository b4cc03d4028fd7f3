package kube_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/restore"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// choose asks for a pod's choice as the shim does: with little time.
func choose(t *testing.T, r *running, pod *corev1.Pod, limit time.Duration) (restore.Choice, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return r.Choose(ctx, refOf(pod), unlived)
}

// unlived is the past of a pod that has not run.
func unlived() (lives.Past, error) { return lives.Past{}, nil }

// hopeless asks for a pod's choice with little time, and returns the error when it is over: a snapshot is waited for in
// vain. A busy machine needs more time to find out why.
func hopeless(t *testing.T, r *running, pod *corev1.Pod) error {
	t.Helper()
	for limit := 300 * time.Millisecond; ; limit *= 2 {
		got, err := choose(t, r, pod, limit)
		if err == nil || errors.Is(err, rules.ErrPending) || limit > enough {
			return errors.Join(err, fmt.Errorf("within %v: %+v", limit, got))
		}
	}
}

// enough is more time than any answer needs that does not have to wait.
const enough = 20 * time.Second

func name(n string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationSnapshotName, n)
	}
}

// local sets the annotation that counts if there is no cluster.
func local(from string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationRestoreFrom, from)
	}
}

// TestChoose: a pod gets the newest snapshot of its group, or the one that it names, on either node.
func TestChoose(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	ra, rb := w.start(a), w.start(b)
	w.pod(a, "web", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "init", Image: "i"},
			{Name: "side", Image: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		}
	})
	first := w.replicated(w.complete(w.trigger("t1", "web")))
	newest := w.replicated(w.complete(w.trigger("t2", "web")))
	if newest.CreationTimestamp.Equal(&first.CreationTimestamp) && first.Name < newest.Name {
		first, newest = newest, first // of two with the same time, the one with the lesser name is newer
	}
	like := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "init", Image: "i"},
			{Name: "side", Image: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		}
	}
	for i, c := range []struct {
		node string
		r    *running
		edit []func(*corev1.Pod)
		want string // the snapshot, or part of the refusal
	}{
		{a, ra, nil, newest.Name},
		{b, rb, nil, newest.Name},
		{b, rb, []func(*corev1.Pod){name(first.Name)}, first.Name},
		{b, rb, []func(*corev1.Pod){func(p *corev1.Pod) { p.Labels[podsnapshotv1.LabelSandboxNameHash] = "other" }}, ""},
		{b, rb, []func(*corev1.Pod){func(p *corev1.Pod) { p.Labels = nil }}, ""},
		{
			b, rb,
			[]func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" }},
			"container app: image differs",
		},
		{
			b, rb,
			[]func(*corev1.Pod){name(first.Name), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }},
			"container app: command differs",
		},
		{b, rb, []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.ServiceAccountName = "other" }}, "service account differs"},
		{b, rb, []func(*corev1.Pod){local(w.ns + "/" + first.Name)}, first.Name},
		{b, rb, []func(*corev1.Pod){local("elsewhere/" + first.Name)}, "is of another namespace"},
		{b, rb, []func(*corev1.Pod){
			local(w.ns + "/" + first.Name),
			func(p *corev1.Pod) { p.Spec.ServiceAccountName = "other" },
		}, "service account differs"},
		{b, rb, []func(*corev1.Pod){name("absent")}, "there is no PodSnapshot absent"},
		{b, rb, []func(*corev1.Pod){name("elsewhere/" + first.Name)}, "is of another namespace"},
		{b, rb, []func(*corev1.Pod){name("../x")}, "is of another namespace"},
	} {
		pod := w.pod(c.node, fmt.Sprint("new", i), append([]func(*corev1.Pod){like}, c.edit...)...)
		got, err := choose(t, c.r, pod, enough)
		switch {
		case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("case %d: refused: %v; want %q", i, err, c.want)
		case err == nil && got.Snapshot.Name != c.want:
			t.Errorf("case %d: %+v, want %q", i, got, c.want)
		case err == nil && c.want != "" &&
			(got.Snapshot.Namespace != w.ns || got.Store != w.location() || got.Fail || len(got.Init) != 1 ||
				got.Init[0] != "init"):
			t.Errorf("case %d: %+v", i, got)
		}
	}
}

// TestRootfsOnly: under a policy with that scope, PodSnapshots say so, and fit pods with any spec. The pods are
// restored once all of their own containers run. The scope of the stored snapshot counts.
func TestRootfsOnly(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	var policy podsnapshotv1.PodSnapshotPolicy
	if err := api.client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "policy"}, &policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.SnapshotScope = podsnapshotv1.ScopeRootfsOnly
	if err := api.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	if err := w.eventually(func(ctx context.Context) error { // the cache has it
		d, err := r.Describe(ctx, refOf(w.pod(a, fmt.Sprint("probe", time.Now().UnixNano()))))
		if err == nil && d.Scope != snapshot.RootfsOnly {
			err = fmt.Errorf("described as %+v", d)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	if got := s.Annotations[podsnapshotv1.AnnotationScope]; got != "rootfs-only" {
		t.Errorf("the PodSnapshot's scope is %q", got)
	}
	other := w.pod(a, "other", func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "app:2"
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i"}}
	})
	got, err := choose(t, r, other, enough)
	if err != nil || got.Snapshot.Name != s.Name || got.Containers != 1+len(other.Spec.Containers) {
		t.Errorf("%+v, %v", got, err)
	}
	before := s.DeepCopy()
	delete(s.Annotations, podsnapshotv1.AnnotationScope)
	if err := api.client.Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := w.eventually(func(context.Context) error {
		_, err := choose(t, r, w.pod(a, fmt.Sprint("forged", time.Now().UnixNano()), name(s.Name)), enough)
		if err == nil || !strings.Contains(err.Error(), "its scope differs") {
			return fmt.Errorf("refused: %w", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestChooseIncompatible: a node with another runsc accepts no older snapshots, and says so.
func TestChooseIncompatible(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	w.start(a)
	rb := w.start(b, func(n *fakeNode, _ *kube.Config) { n.facts.RunscVersion = "r2" })
	w.pod(a, "web")
	w.replicated(w.complete(w.trigger("t", "web")))
	_, err := choose(t, rb, w.pod(b, "new"), enough)
	if err == nil || !strings.Contains(err.Error(), `runsc version differs ("r1" in the snapshot, "r2" here)`) {
		t.Errorf("refused: %v", err)
	}
}

// TestChooseForged: the stored snapshot counts, not what somebody wrote into a PodSnapshot.
func TestChooseForged(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	before := s.DeepCopy()
	s.Annotations[podsnapshotv1.AnnotationServiceAccount] = "other"
	if err := api.client.Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	pod := w.pod(a, "new", name(s.Name), func(p *corev1.Pod) { p.Spec.ServiceAccountName = "other" })
	err := w.eventually(func(context.Context) error {
		_, err := choose(t, r, pod, enough)
		if err == nil || !strings.Contains(err.Error(), "the stored snapshot does not match PodSnapshot") {
			return fmt.Errorf("refused: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestHostileUnsignedChoice: the stored snapshot was replaced by one that matches the PodSnapshot in everything, and
// that no trusted key has signed. No pod is restored from it, not even on the node that has made it, and the error says
// who has signed it.
func TestHostileUnsignedChoice(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	r, elsewhere := w.start(a), w.start(b)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	chosen, err := choose(t, r, w.pod(a, "before", name(s.Name)), enough)
	if err != nil || chosen.Snapshot.Name != s.Name {
		t.Fatalf("as it was: %+v, %v", chosen, err)
	}
	for node, r := range map[string]*running{a: r, b: elsewhere} {
		w.disks[node].untrusted.Store(true)
		for _, edit := range [][]func(*corev1.Pod){{name(s.Name)}, nil} {
			_, err := choose(t, r, w.pod(node, fmt.Sprint("after-", len(edit), "-", node), edit...), enough)
			if !errors.Is(err, storage.ErrUntrusted) || !strings.Contains(err.Error(), "SHA256:forger") ||
				!strings.Contains(err.Error(), "PodSnapshot "+w.ns+"/"+s.Name) {
				t.Errorf("on node %s: %v", node, err)
			}
		}
	}
}

// TestHostileLocation: a node that was taken over says that its PodSnapshot is stored where no operator has configured
// a store. No other node reads from there, until an operator names that store.
func TestHostileLocation(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	w.pod(a, "web")
	s := w.replicated(w.complete(w.trigger("t", "web")))
	before := s.DeepCopy()
	s.Status.StorageStatus.GCS.ObservedGCSPath = "gs://theirs/x/" + w.ns + "/snapshots/" + s.Name
	if err := api.client.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	pod := w.pod(a, "new", name(s.Name))
	if err := w.eventually(func(context.Context) error {
		_, err := choose(t, r, pod, enough)
		if err == nil || !strings.Contains(err.Error(), `"gs://theirs/x", which no PodSnapshotStorageConfig names`) {
			return fmt.Errorf("refused: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.create(&podsnapshotv1.PodSnapshotStorageConfig{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-theirs"},
		Spec: podsnapshotv1.PodSnapshotStorageConfigSpec{SnapshotStorageConfig: podsnapshotv1.SnapshotStorageConfig{
			GCS: &podsnapshotv1.GCSStorage{Bucket: "theirs", Path: "x"},
		}},
	})
	if got, err := choose(t, r, pod, enough); err != nil || got.Store != "gs://theirs/x" {
		t.Errorf("once it is configured: %+v, %v", got, err)
	}
}

// TestChooseFail: the policy, or the pod, forbids a cold start.
func TestChooseFail(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	fail := func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podsnapshotv1.AnnotationOnRestoreFailure,
			podsnapshotv1.OnRestoreFailureFail)
	}
	if got, err := choose(t, r, w.pod(a, "x", name("absent"), fail), enough); err == nil || !got.Fail {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := choose(t, r, w.pod(a, "y", name("absent")), enough); err == nil || got.Fail {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := choose(t, r, w.pod(a, "z", fail), enough); err != nil || !got.Fail || got.Snapshot.Name != "" {
		t.Errorf("a pod that nothing is there for: %+v, %v", got, err)
	}
}

// TestChooseWaits: if a snapshot is only on another node, the choice waits for it as long as there is time, and then
// refuses with the reason.
func TestChooseWaits(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	replicate := holdAt(stepReplicate)
	ra := w.start(a, replicate.set)
	rb := w.start(b)
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	if got, err := choose(t, ra, w.pod(a, "near"), enough); err != nil || got.Snapshot.Name != s.Name {
		t.Errorf("on its node: %+v, %v", got, err)
	}
	far := w.pod(b, "far", name(s.Name))
	if err := hopeless(t, rb, far); !strings.Contains(err.Error(), "is on node "+a+" only") {
		t.Errorf("refused: %v", err)
	}
	type answer struct {
		restore.Choice
		error
	}
	got := make(chan answer)
	go func() {
		c, err := choose(t, rb, far, enough)
		got <- answer{c, err}
	}()
	close(replicate.release)
	if x := <-got; x.error != nil || x.Snapshot.Name != s.Name {
		t.Errorf("%+v", x)
	}
}

// TestChooseSaysWhatItWaitedFor: the time of a pod that waits for a snapshot ends while the API server is asked once
// more. The error says what the pod has waited for.
func TestChooseSaysWhatItWaitedFor(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.control()
	replicate := holdAt(stepReplicate)
	w.start(a, replicate.set)
	t.Cleanup(func() { close(replicate.release) })
	var looks atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	rb := w.start(b, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/podsnapshots/") && looks.Add(1) == 2 {
					cancel()
					<-r.Context().Done()
				}
				return next.RoundTrip(r)
			})
		})
	})
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	_, err := rb.Choose(ctx, refOf(w.pod(b, "far", name(s.Name))), unlived)
	if !errors.Is(err, rules.ErrPending) || !strings.Contains(err.Error(), "is on node "+a+" only") {
		t.Errorf("refused: %v", err)
	}
}

// TestChooseUnknownPod: a pod starts as usual if the API server does not know it, or knows another pod in its place.
func TestChooseUnknownPod(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	pod := w.pod(a, "web")
	w.complete(w.trigger("t", "web"))
	for _, ref := range []snapshot.PodRef{
		{Namespace: w.ns, Name: "absent", UID: "x"},
		{Namespace: w.ns, Name: "web", UID: "x"},
	} {
		if got, err := r.Choose(t.Context(), ref, unlived); err != nil || got.Snapshot.Name != "" {
			t.Errorf("%v: %+v, %v", ref, got, err)
		}
	}
	if got, err := r.Choose(t.Context(), refOf(pod), unlived); err != nil || got.Snapshot.Name == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestChooseBeforeTheCache: the API server is asked for what is not in the cache yet.
func TestChooseBeforeTheCache(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	pod := w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	other := w.pod("", "unplaced", name(s.Name), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
	if got, err := choose(t, r, other, enough); err != nil || got.Snapshot.Name != s.Name {
		t.Errorf("%+v, %v", got, err)
	}
	_ = pod
}

// TestChooseTwoPolicies: if several policies select a pod, the answer names them and does not guess.
func TestChooseTwoPolicies(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	w.create(w.policy("second"))
	pod := w.pod(a, "web")
	err := w.eventually(func(context.Context) error {
		_, err := choose(t, r, pod, enough)
		if err == nil || !strings.Contains(err.Error(), "several PodSnapshotPolicies select pod") {
			return fmt.Errorf("refused: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// restored returns the condition PodRestored of a pod, or nil.
func restored(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == podsnapshotv1.ConditionPodRestored {
			return c
		}
	}
	return nil
}

// TestRestored: when Restored returns, the pod has the condition, beside the kubelet's conditions.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	w.pod(a, "web")
	s := w.complete(w.trigger("t", "web"))
	k := snapshot.Key{Namespace: w.ns, Name: s.Name}
	pod := w.pod(a, "new")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if err := api.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	read := func() *corev1.PodCondition {
		t.Helper()
		if err := api.client.Get(t.Context(), keyOf(pod), pod); err != nil {
			t.Fatal(err)
		}
		if len(pod.Status.Conditions) != 2 {
			t.Fatalf("conditions %+v", pod.Status.Conditions)
		}
		return restored(pod)
	}
	r.NotRestored(t.Context(), refOf(pod), k, errors.New("no memory"))
	if c := read(); c.Status != corev1.ConditionFalse || c.Reason != podsnapshotv1.ReasonFailedToRestore ||
		c.Message != "no memory" {
		t.Errorf("condition %+v", c)
	}
	w.event(pod, corev1.EventTypeWarning, "Failed to restore the pod: no memory")
	if err := r.Restored(t.Context(), refOf(pod), k); err != nil {
		t.Error(err)
	}
	want := "Successfully restored the pod from PodSnapshot " + w.ns + "/" + s.Name
	if c := read(); c.Status != corev1.ConditionTrue || c.Reason != podsnapshotv1.ReasonRestored || c.Message != want ||
		c.LastTransitionTime.IsZero() {
		t.Errorf("condition %+v", c)
	}
	w.event(pod, corev1.EventTypeNormal, want)
	until(w, s, func(s *podsnapshotv1.PodSnapshot) error {
		if s.Status.LastAccessTime == nil {
			return errors.New("it does not say when it was used")
		}
		return nil
	})
}

// TestRestoredAnother: a pod that has taken the place of the restored one is not touched.
func TestRestoredAnother(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	pod := w.pod(a, "web")
	gone := refOf(pod)
	gone.UID = "another"
	if err := r.Restored(t.Context(), gone, snapshot.Key{Namespace: w.ns, Name: "s"}); err != nil {
		t.Error(err)
	}
	if err := api.client.Get(t.Context(), keyOf(pod), pod); err != nil || restored(pod) != nil {
		t.Errorf("condition %+v, %v", restored(pod), err)
	}
}

// TestRestoredLater: while the API server is unreachable, Restored and NotRestored return in time. The agent itself
// retries the report of a failed restore. The report of a success fails instead, and the shim, which outlives the
// agent, repeats it.
func TestRestoredLater(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var away atomic.Bool
	r := w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(req *http.Request) (*http.Response, error) {
				if away.Load() && req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/pods/") {
					return nil, errors.New("away")
				}
				return next.RoundTrip(req)
			})
		})
	})
	pod := w.pod(a, "web")
	away.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	k := snapshot.Key{Namespace: w.ns, Name: "s"}
	if err := r.Restored(ctx, refOf(pod), k); err == nil {
		t.Error("no error, though the API server was away")
	}
	r.NotRestored(ctx, refOf(pod), k, errors.New("no memory"))
	away.Store(false)
	until(w, pod, func(p *corev1.Pod) error {
		if c := restored(p); c == nil || c.Status != corev1.ConditionFalse {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestStaleFailure: a failed restore that could not be reported is not reported once the pod is restored.
func TestStaleFailure(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	var away atomic.Bool
	r := w.start(a, func(_ *fakeNode, c *kube.Config) {
		c.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(req *http.Request) (*http.Response, error) {
				if away.Load() && req.Method == http.MethodPatch && carries(t, req, podsnapshotv1.ReasonFailedToRestore) {
					return nil, errors.New("away")
				}
				return next.RoundTrip(req)
			})
		})
	})
	pod, other := w.pod(a, "web"), w.pod(a, "other")
	away.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	k := snapshot.Key{Namespace: w.ns, Name: "s"}
	for _, p := range []*corev1.Pod{pod, other} {
		r.NotRestored(ctx, refOf(p), k, errors.New("no memory"))
	}
	if err := r.Restored(t.Context(), refOf(pod), k); err != nil {
		t.Fatal(err)
	}
	away.Store(false)
	is := func(want corev1.ConditionStatus) func(*corev1.Pod) error {
		return func(p *corev1.Pod) error {
			if c := restored(p); c == nil || c.Status != want {
				return fmt.Errorf("condition %+v, want %s", c, want)
			}
			return nil
		}
	}
	until(w, other, is(corev1.ConditionFalse)) // it waited behind that of the first pod
	if err := api.client.Get(t.Context(), keyOf(pod), pod); err != nil {
		t.Fatal(err)
	}
	if err := is(corev1.ConditionTrue)(pod); err != nil {
		t.Error(err)
	}
}

// carries reports whether a request's body contains a text.
func carries(t *testing.T, req *http.Request, text string) bool {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Error(err)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, []byte(text))
}

// TestHostileWorkloadWithoutPolicy: a pod saves itself only once a policy says so. The agent need not have heard of the
// policy yet.
func TestHostileWorkloadWithoutPolicy(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	pod := refOf(w.pod(a, "web"))
	_, err := r.DescribeWorkload(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), "may not save itself") {
		t.Errorf("under a policy for triggers: %v", err)
	}
	unknown := snapshot.PodRef{Namespace: w.ns, Name: "unknown", UID: "x"}
	if _, err := r.DescribeWorkload(t.Context(), unknown); err == nil {
		t.Error("a pod that the cluster does not know may save itself")
	}
	edit(w, w.policy("policy"), func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Spec.TriggerConfig.Type = podsnapshotv1.TriggerWorkload
	})
	if d, err := r.DescribeWorkload(t.Context(), pod); err != nil || d.Store != w.location() || d.SpecHash == "" {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestDescribe: a request through the node's local socket gets what the pod's policy says. It is refused while the
// pod's init containers have not ended.
func TestDescribe(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	d, err := r.Describe(t.Context(), refOf(w.pod(a, "web")))
	if err != nil || d.ServiceAccount != "default" || d.Store != w.location() ||
		d.Group[podsnapshotv1.LabelSandboxNameHash] != "0a0a0a0a" || d.SpecHash == "" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := r.Describe(t.Context(), snapshot.PodRef{Namespace: w.ns, Name: "unknown", UID: "x"}); err != nil ||
		d.SpecHash != "" || d.Store != "" {
		t.Errorf("a pod that the cluster does not know: %+v, %v", d, err)
	}
	early := w.pod(a, "early", func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Status.Phase = []corev1.Container{{Name: "init", Image: "i"}}, corev1.PodPending
	})
	if _, err := r.Describe(t.Context(), refOf(early)); err == nil ||
		!strings.Contains(err.Error(), "init containers have not ended") {
		t.Errorf("a pod that is still initialized: %v", err)
	}
}
