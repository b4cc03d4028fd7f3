package kube_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sdk makes the calls of the published Agent Sandbox SDK's snapshot engine, with plain JSON.
type sdk struct {
	w *world
	dynamic.Interface
}

var group = schema.GroupVersion{Group: "podsnapshot.gke.io", Version: "v1"}

func newSDK(w *world) sdk {
	w.t.Helper()
	c, err := dynamic.NewForConfig(api.Config)
	if err != nil {
		w.t.Fatal(err)
	}
	return sdk{w, c}
}

func (s sdk) in(resource string) dynamic.ResourceInterface {
	return s.Resource(group.WithResource(resource)).Namespace(s.w.ns)
}

// check does what the SDK's constructor does.
func (s sdk) check() error {
	list, err := api.Client.Discovery().ServerResourcesForGroupVersion(group.String())
	if err != nil {
		return err
	}
	for _, r := range list.APIResources {
		if r.Kind == "PodSnapshot" && r.Name == "podsnapshots" {
			return nil
		}
	}
	return errors.New("Pod Snapshot Controller is not ready")
}

// create is SnapshotEngine.create: POST, then a watch from the answer's resource version. It returns
// the snapshot and the time of the condition.
func (s sdk) create(ctx context.Context, name, pod string) (uid, at string, err error) {
	made, err := s.in("podsnapshotmanualtriggers").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group.String(), "kind": "PodSnapshotManualTrigger",
		"metadata": map[string]any{"name": name, "namespace": s.w.ns},
		"spec":     map[string]any{"targetPod": pod},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", "", err
	}
	wt, err := s.in("podsnapshotmanualtriggers").Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: made.GetResourceVersion(), TimeoutSeconds: new(int64(180)),
	})
	if err != nil {
		return "", "", err
	}
	defer wt.Stop()
	for e := range wt.ResultChan() {
		if e.Type == watch.Deleted || e.Type == watch.Error {
			return "", "", fmt.Errorf("event %s", e.Type)
		}
		o := e.Object.(*unstructured.Unstructured).Object
		conditions, _, _ := unstructured.NestedSlice(o, "status", "conditions")
		for _, c := range conditions {
			c := c.(map[string]any)
			switch {
			case c["type"] != "Triggered":
			case c["status"] == "True" && c["reason"] == "Complete":
				uid, found, err := unstructured.NestedString(o, "status", "snapshotCreated", "name")
				at, _ := c["lastTransitionTime"].(string)
				if !found || err != nil || at == "" { // early versions of the SDK skip such an event, later ones fail
					return "", "", fmt.Errorf("completed without required metadata: %v", o["status"])
				}
				return uid, at, nil
			case c["status"] == "False" && (c["reason"] == "Failed" || c["reason"] == "Error"):
				return "", "", fmt.Errorf("%v", c["message"])
			}
		}
	}
	return "", "", errors.New("was not processed in time")
}

// list is SnapshotEngine.list: it returns names, newest first, in the SDK's order.
func (s sdk) list(ctx context.Context, hash string, readyOnly bool) ([]string, error) {
	all, err := s.in("podsnapshots").List(ctx,
		metav1.ListOptions{LabelSelector: "agents.x-k8s.io/sandbox-name-hash=" + hash})
	if err != nil {
		return nil, err
	}
	items := slices.DeleteFunc(all.Items, func(o unstructured.Unstructured) bool {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		ready := slices.ContainsFunc(conditions, func(c any) bool {
			m := c.(map[string]any)
			return m["type"] == "Ready" && m["status"] == "True"
		})
		return readyOnly && !ready
	})
	created := func(o unstructured.Unstructured) string {
		at, _, _ := unstructured.NestedString(o.Object, "metadata", "creationTimestamp")
		return at
	}
	slices.SortStableFunc(items, func(a, b unstructured.Unstructured) int { return cmp.Compare(created(b), created(a)) })
	var names []string
	for _, o := range items {
		if o.GetAnnotations()["podsnapshot.gke.io/origin-pod"] == "" {
			return nil, fmt.Errorf("PodSnapshot %s does not say of which pod it is", o.GetName())
		}
		names = append(names, o.GetName())
	}
	return names, nil
}

// remove is SnapshotEngine.delete: DELETE, then GET, then a watch from the resource version in the answer to the
// DELETE, until the object is gone.
func (s sdk) remove(ctx context.Context, name string) error {
	var deleted metav1.PartialObjectMetadata // has no resource version if the answer is a Status
	answer, err := api.Client.Discovery().RESTClient().Delete().AbsPath("apis", group.Group, group.Version, "namespaces",
		s.w.ns, "podsnapshots", name).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(answer, &deleted)
	}
	if err != nil {
		return err
	}
	if _, err := s.in("podsnapshots").Get(ctx, name, metav1.GetOptions{}); err != nil {
		return client.IgnoreNotFound(err)
	}
	wt, err := s.in("podsnapshots").Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: deleted.ResourceVersion, TimeoutSeconds: new(int64(180)),
	})
	if err != nil {
		return err
	}
	defer wt.Stop()
	for e := range wt.ResultChan() {
		switch e.Type {
		case watch.Deleted:
			return nil
		case watch.Error:
			return fmt.Errorf("event %s: %v", e.Type, e.Object)
		}
	}
	return errors.New("was not deleted in time")
}

// TestSDK makes the SDK's calls in the SDK's order: check, create, list, immediate suspend, resume, restore of an
// older snapshot, delete, delete all.
func TestSDK(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	w.start(a)
	rb := w.start(b)
	w.control()
	s := newSDK(w)
	ctx := t.Context()
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	const hash = "0a0a0a0a"
	w.pod(a, "sandbox")
	var made []string
	for i := range 3 {
		uid, at, err := s.create(ctx, fmt.Sprintf("snap-%d", i), "sandbox")
		if err != nil || at == "" {
			t.Fatalf("create: %v", err)
		}
		names, err := s.list(ctx, hash, true)
		if err != nil || !slices.Contains(names, uid) {
			t.Fatalf("the snapshot %s is not listed as ready at once: %q, %v", uid, names, err)
		}
		made = append(made, uid)
	}
	w.deletePod("sandbox") // suspend

	names, err := s.list(ctx, hash, true)
	if err != nil || len(names) != 3 {
		t.Fatalf("list: %q, %v", names, err)
	}
	for _, n := range names {
		w.replicated(w.snapshot(n))
	}
	resumed := w.pod(b, "sandbox") // resume: the newest, on another node
	s.restoredFrom(t, rb, resumed, names[0])
	w.deletePod("sandbox")
	restored := w.pod(b, "sandbox", name(names[2])) // restore of an older one
	s.restoredFrom(t, rb, restored, names[2])

	for _, tr := range []string{"snap-0", "snap-1", "snap-2"} { // terminate deletes the triggers
		if err := s.in("podsnapshotmanualtriggers").Delete(ctx, tr, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := s.list(ctx, hash, false); err != nil || len(left) != 3 {
		t.Fatalf("snapshots went with their triggers: %q are left, %v", left, err)
	}
	if err := s.remove(ctx, made[1]); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if err := s.remove(ctx, made[1]); !apierrors.IsNotFound(err) {
		t.Errorf("delete again: %v", err)
	}
	left, err := s.list(ctx, hash, false)
	if err != nil || len(left) != 2 {
		t.Fatalf("list: %q, %v", left, err)
	}
	for _, n := range left {
		if err := s.remove(ctx, n); err != nil {
			t.Errorf("delete all: %v", err)
		}
	}
	for _, n := range made {
		if w.stored(n) {
			t.Errorf("%s is still in the store", n)
		}
	}
	if _, _, err := s.create(ctx, "nobody", "absent"); err == nil || !strings.Contains(err.Error(), "there is no pod") {
		t.Errorf("a trigger for no pod: %v", err)
	}
}

// restoredFrom starts a pod as its shim would, and checks, once, what the SDK reads afterwards.
func (s sdk) restoredFrom(t *testing.T, r *running, pod *corev1.Pod, want string) {
	t.Helper()
	got, err := choose(t, r, pod, enough)
	if err != nil || got.Snapshot.Name != want {
		t.Fatalf("pod %s gets %+v, %v; want %s", pod.Name, got, err, want)
	}
	if err := r.Restored(t.Context(), refOf(pod), got.Snapshot); err != nil {
		t.Error(err)
	}
	if err := api.client.Get(t.Context(), keyOf(pod), pod); err != nil {
		t.Fatal(err)
	}
	if c := restored(pod); c == nil || c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, want) {
		t.Errorf("condition %+v, want one that names %s", c, want)
	}
}
