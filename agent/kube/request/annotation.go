package request

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// maxID bounds the value of the annotation diapause.dev/checkpoint, in bytes.
const maxID = 253

// servePod reconciles the annotation that asks for a checkpoint, on a pod of this node.
func (sv *server) servePod(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	pod, err := sv.objects.PodHere(ctx, r.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil {
		sv.records.Jobs.Gone(record.Requester{Namespace: r.Namespace, Pod: r.Name}, record.Asker{})
		return reconcile.Result{}, nil
	}
	id := pod.Annotations[podsnapshotv1.AnnotationCheckpoint]
	if id == "" {
		return reconcile.Result{}, nil
	}
	a := &askedByAnnotation{objects: sv.objects, nodeName: sv.nodeName, pod: pod, id: id}
	sv.records.Jobs.Gone(a.requester(), a.asker())
	switch s := ParseStatus(pod); {
	case s.ID == id && (s.State == StateComplete || s.State == StateFailed):
		return reconcile.Result{}, sv.close(a)
	case len(id) > maxID:
		a.id = id[:maxID]
		why := fmt.Sprintf("the value of %s has %d bytes: write at most %d", podsnapshotv1.AnnotationCheckpoint, len(id),
			maxID)
		return control.RetryConflict(client.IgnoreNotFound(a.failed(ctx, id, why)))
	case s.ID == id:
		a.uid = string(pod.UID)
	}
	return control.RetryConflict(sv.serve(ctx, a, pod))
}

// askedByAnnotation implements asked.
type askedByAnnotation struct {
	objects  *objects.Objects
	nodeName string
	pod      *corev1.Pod
	id       string
	uid      string // of the pod, once the request was taken
}

func (a *askedByAnnotation) requester() record.Requester {
	return record.Requester{Namespace: a.pod.Namespace, Pod: a.pod.Name}
}

func (a *askedByAnnotation) asker() record.Asker {
	return record.AnnotationAsker(a.pod.Namespace, a.pod.UID, a.id)
}

func (a *askedByAnnotation) podName() string { return a.pod.Name }

func (a *askedByAnnotation) taken() string { return a.uid }

// take fails on a conflict, because the pod may have an answer that the cache does not have yet.
func (a *askedByAnnotation) take(ctx context.Context, _ *corev1.Pod) error {
	return a.write(ctx, a.pod.ResourceVersion, Status{
		ID: a.id, State: StateCheckpointing, Message: fmt.Sprintf(notice.CheckpointingPod, a.nodeName),
	})
}

// wait fails on a conflict, like take.
func (a *askedByAnnotation) wait(ctx context.Context, message string) error {
	s := Status{ID: a.id, State: StateCheckpointing, Message: rules.Message(message)}
	if ParseStatus(a.pod) == s {
		return nil
	}
	return a.write(ctx, a.pod.ResourceVersion, s)
}

func (a *askedByAnnotation) complete(ctx context.Context, k snapshot.Key, warning string) error {
	return a.write(ctx, "", Status{
		ID: a.id, State: StateComplete, Snapshot: k.Name,
		Message: rules.Made(k.String(), warning),
	})
}

func (a *askedByAnnotation) fail(ctx context.Context, why string) error {
	return a.failed(ctx, a.id, why)
}

func (a *askedByAnnotation) failed(ctx context.Context, id, why string) error {
	return a.write(ctx, "", Status{ID: id, State: StateFailed, Message: rules.Message(why)})
}

// annotationPatch changes one annotation of the pod with this UID and, unless it is empty, this resource version.
type annotationPatch struct {
	Metadata struct {
		UID             types.UID         `json:"uid"`
		ResourceVersion string            `json:"resourceVersion,omitempty"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// write writes the answer on the pod. Without a version, a conflict or an immutable UID means that another pod has
// taken the pod's place. That pod needs no answer.
func (a *askedByAnnotation) write(ctx context.Context, version string, s Status) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("status of pod %s: %w", rules.PodKey(a.pod), err)
	}
	var p annotationPatch
	p.Metadata.UID, p.Metadata.ResourceVersion = a.pod.UID, version
	p.Metadata.Annotations = map[string]string{podsnapshotv1.AnnotationCheckpointStatus: string(b)}
	if b, err = json.Marshal(p); err != nil {
		return fmt.Errorf("status of pod %s: %w", rules.PodKey(a.pod), err)
	}
	err = a.objects.Status().Patch(ctx, a.pod.DeepCopy(), client.RawPatch(types.MergePatchType, b))
	if err == nil || version == "" && (apierrors.IsConflict(err) || apierrors.IsInvalid(err)) {
		return nil
	}
	return fmt.Errorf("status of pod %s: %w", rules.PodKey(a.pod), err)
}
