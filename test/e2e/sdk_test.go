package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// The resources that the SDK speaks with, by name: it knows no types of ours.
var (
	triggerResource = schema.GroupVersionResource{
		Group: "podsnapshot.gke.io", Version: "v1",
		Resource: "podsnapshotmanualtriggers",
	}
	snapshotResource = schema.GroupVersionResource{Group: "podsnapshot.gke.io", Version: "v1", Resource: "podsnapshots"}
	podResource      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// The SDK's own patience.
const (
	sdkTimeout = 180 * time.Second // for a snapshot, a pod that ends, a pod that becomes Ready, a deletion
	sdkPoll    = 2 * time.Second   // between two looks at a pod
)

// sdk calls the API server and waits just as the snapshot extension of the Agent Sandbox SDK for
// Python does, for one sandbox. Where that patches a Sandbox, for its controller to delete or create
// the pod, create and Delete of the pod are called.
type sdk struct {
	api     dynamic.Interface
	in      string // namespace
	sandbox string // the name of the sandbox, and of its pod
	create  func(ctx context.Context, annotations map[string]string) error
}

// item is one snapshot of a list.
type item struct {
	uid, sourcePod, created string
	ready                   bool
}

var errSDK = errors.New("the SDK reports a failure")

// isReady is what the constructor of its client looks for.
func (s *sdk) isReady(resources *metav1.APIResourceList) error {
	for _, r := range resources.APIResources {
		if r.Kind == "PodSnapshot" {
			return nil
		}
	}
	return fmt.Errorf("%w: the Pod Snapshot Controller is not ready", errSDK)
}

// snapshot is snapshots.create: it returns the snapshot's name and its time.
func (s *sdk) snapshot(ctx context.Context, name string) (uid, timestamp string, err error) {
	name = triggerName(name)
	triggers := s.api.Resource(triggerResource).Namespace(s.in)
	made, err := triggers.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "podsnapshot.gke.io/v1", "kind": "PodSnapshotManualTrigger",
		"metadata": map[string]any{"name": name, "namespace": s.in},
		"spec":     map[string]any{"targetPod": s.sandbox},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", "", err
	}
	events, stop, err := watchOne(ctx, triggers, made)
	if err != nil {
		return "", "", err
	}
	defer stop()
	for e := range events {
		if e.Type == watch.Deleted || e.Type == watch.Error {
			return "", "", fmt.Errorf("%w: event %s: %v", errSDK, e.Type, e.Object)
		}
		uid, timestamp, err := created(e.Object.(*unstructured.Unstructured).Object)
		if uid != "" || err != nil {
			return uid, timestamp, err
		}
	}
	return "", "", fmt.Errorf("%w: %s was not processed within %v", errSDK, name, sdkTimeout)
}

// triggerName is the name of the object for the caller's name of a trigger.
func triggerName(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	name = cmp.Or(strings.Trim(name[:min(len(name), 38)], "-"), "snap")
	return fmt.Sprintf("%s-%s-%08x", name, time.Now().UTC().Format("20060102-150405"), rand.Uint32())
}

// created reads a trigger as the SDK does. It returns nothing where that waits for more.
func created(trigger map[string]any) (uid, timestamp string, err error) {
	for _, c := range conditions(trigger) {
		if c["type"] != "Triggered" {
			continue
		}
		reason := c["reason"]
		if c["status"] == "False" && (reason == "Failed" || reason == "Error") {
			return "", "", fmt.Errorf("%w: %v", errSDK, c["message"])
		}
		if c["status"] != "True" || reason != "Complete" {
			continue
		}
		uid, _, _ := unstructured.NestedString(trigger, "status", "snapshotCreated", "name")
		timestamp, _ := c["lastTransitionTime"].(string)
		if uid == "" || timestamp == "" { // early versions wait for more, later ones fail
			return "", "", fmt.Errorf("%w: completed without required metadata: %v", errSDK, trigger["status"])
		}
		return uid, timestamp, nil
	}
	return "", "", nil
}

// watchOne watches one object from its resource version on, as long as the SDK does.
func watchOne(ctx context.Context, in dynamic.ResourceInterface,
	o *unstructured.Unstructured,
) (<-chan watch.Event, func(), error) {
	seconds := int64(sdkTimeout / time.Second)
	w, err := in.Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + o.GetName(), ResourceVersion: o.GetResourceVersion(), TimeoutSeconds: &seconds,
	})
	if err != nil {
		return nil, nil, err
	}
	return w.ResultChan(), w.Stop, nil
}

func conditions(o map[string]any) (out []map[string]any) {
	all, _, _ := unstructured.NestedSlice(o, "status", "conditions")
	for _, c := range all {
		if m, ok := c.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func is(o map[string]any, condition string) bool {
	return slices.ContainsFunc(conditions(o),
		func(c map[string]any) bool { return c["type"] == condition && c["status"] == "True" })
}

// filter is the SDK's SnapshotFilter. A zero time is no bound; both are inclusive.
type filter struct {
	all           bool // not the ready ones alone
	after, before time.Time
}

// list is snapshots.list: newest first.
func (s *sdk) list(ctx context.Context, f filter) (out []item, err error) {
	l, err := s.api.Resource(snapshotResource).Namespace(s.in).List(ctx,
		metav1.ListOptions{LabelSelector: hashLabel + "=" + nameHash(s.sandbox)})
	if err != nil {
		return nil, err
	}
	for _, o := range l.Items {
		i := item{
			uid: o.GetName(), sourcePod: o.GetAnnotations()["podsnapshot.gke.io/origin-pod"],
			ready: is(o.Object, "Ready"),
		}
		i.created, _, _ = unstructured.NestedString(o.Object, "metadata", "creationTimestamp")
		at := o.GetCreationTimestamp().Time
		if !f.all && !i.ready || !f.after.IsZero() && at.Before(f.after) || !f.before.IsZero() && at.After(f.before) {
			continue
		}
		out = append(out, i)
	}
	slices.SortStableFunc(out, func(a, b item) int { return strings.Compare(b.created, a.created) })
	return out, nil
}

// suspend is suspend of a sandbox: the pod is deleted the moment its snapshot is reported.
func (s *sdk) suspend(ctx context.Context) (uid string, err error) {
	if uid, _, err = s.snapshot(ctx, "suspend-"+s.sandbox); err != nil {
		return "", err
	}
	pods := s.api.Resource(podResource).Namespace(s.in)
	pod, err := pods.Get(ctx, s.sandbox, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if err := pods.Delete(ctx, s.sandbox, metav1.DeleteOptions{}); err != nil {
		return "", err
	}
	return uid, s.poll(ctx, func() (bool, error) {
		now, err := pods.Get(ctx, s.sandbox, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && now.GetUID() != pod.GetUID(), err
	})
}

// resume is resume of a sandbox. It returns the snapshot from which the pod was restored.
func (s *sdk) resume(ctx context.Context) (uid string, err error) {
	ready, err := s.list(ctx, filter{})
	if err != nil {
		return "", err
	}
	if len(ready) > 0 {
		uid = ready[0].uid
	}
	return uid, s.wake(ctx, uid, nil)
}

// restore is restore of a suspended sandbox from a snapshot of its own.
func (s *sdk) restore(ctx context.Context, uid string) error {
	ready, err := s.list(ctx, filter{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(ready, func(i item) bool { return i.uid == uid }) {
		return fmt.Errorf("%w: snapshot %s does not exist for this sandbox", errSDK, uid)
	}
	return s.wake(ctx, uid, map[string]string{"podsnapshot.gke.io/ps-name": uid})
}

// wake has the pod created and waits until it is Ready; then it looks once whether it was restored.
func (s *sdk) wake(ctx context.Context, uid string, annotations map[string]string) error {
	if err := s.create(ctx, annotations); err != nil {
		return err
	}
	var pod *unstructured.Unstructured
	err := s.poll(ctx, func() (ok bool, err error) {
		pod, err = s.api.Resource(podResource).Namespace(s.in).Get(ctx, s.sandbox, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && pod.GetDeletionTimestamp() == nil && is(pod.Object, "Ready"), err
	})
	if err != nil || uid == "" {
		return err
	}
	for _, c := range conditions(pod.Object) {
		if message, _ := c["message"].(string); c["type"] == "PodRestored" && c["status"] == "True" &&
			strings.Contains(message, uid) {
			return nil
		}
	}
	return fmt.Errorf("%w: pod ready but not restored from snapshot %s: %v", errSDK, uid, conditions(pod.Object))
}

// remove is snapshots.delete. It reports whether there was such a snapshot.
func (s *sdk) remove(ctx context.Context, uid string) (bool, error) {
	snapshots := s.api.Resource(snapshotResource).Namespace(s.in)
	if err := snapshots.Delete(ctx, uid, metav1.DeleteOptions{}); err != nil {
		return false, ignoreGone(err)
	}
	now, err := snapshots.Get(ctx, uid, metav1.GetOptions{})
	if err != nil {
		return true, ignoreGone(err)
	}
	events, stop, err := watchOne(ctx, snapshots, now)
	if err != nil {
		return false, err
	}
	defer stop()
	for e := range events {
		if e.Type == watch.Deleted {
			return true, nil
		}
	}
	return false, fmt.Errorf("%w: snapshot %s is still there after %v", errSDK, uid, sdkTimeout)
}

// removeAll is snapshots.delete_all.
func (s *sdk) removeAll(ctx context.Context, f filter) (removed []string, err error) {
	f.all = true
	all, err := s.list(ctx, f)
	for _, i := range all {
		ok, err := s.remove(ctx, i.uid)
		if err != nil {
			return removed, err
		}
		if ok {
			removed = append(removed, i.uid)
		}
	}
	return removed, err
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// poll looks as often and as long as the SDK does.
func (s *sdk) poll(ctx context.Context, done func() (bool, error)) error {
	for end := time.Now().Add(sdkTimeout); time.Now().Before(end); {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sdkPoll):
		}
	}
	return fmt.Errorf("%w: timed out waiting for pod %s", errSDK, s.sandbox)
}
