package request

import (
	"context"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// waiters are those that wait for news of a checkpoint: its PodSnapshot, which is to be written; the object that asked;
// and the next request for the pod. It requeues them.
type waiters struct {
	objects *objects.Objects
	records *record.Records
	work    *control.Background
	log     *slog.Logger

	triggers, pods, snapshots control.Queue // of the controllers of these objects
}

// kick requeues an object that asked for a checkpoint.
func (w *waiters) kick(d record.Requester) {
	if d.Trigger != "" {
		w.triggers.Kick(client.ObjectKey{Namespace: d.Namespace, Name: d.Trigger})
		return
	}
	w.pods.Kick(client.ObjectKey{Namespace: d.Namespace, Name: d.Pod})
}

// captured requeues everything that waits for the snapshot or its pod.
func (w *waiters) captured(k snapshot.Key) {
	if j := w.records.Jobs.Captured(k); j != nil {
		w.progressed(k)
		w.nextTurn(j.Pod)
	}
}

// progressed requeues everything that waits for a snapshot: first its PodSnapshot, then the object that asked for it.
func (w *waiters) progressed(k snapshot.Key) {
	w.snapshots.Kick(objects.Named(k))
	if d, ok := w.records.Jobs.Requester(k); ok {
		w.kick(d)
	}
}

// nextTurn requeues what waits for a pod: the trigger whose turn it is, and the pod with its annotation.
func (w *waiters) nextTurn(pod snapshot.PodRef) {
	if t, err := w.firstTrigger(w.work.Life, pod); err == nil && t != "" {
		w.triggers.Kick(client.ObjectKey{Namespace: pod.Namespace, Name: t})
	}
	w.pods.Kick(client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name})
}

// firstTrigger returns the name of the trigger whose turn it is for a pod, or "" if there is none.
func (w *waiters) firstTrigger(ctx context.Context, pod snapshot.PodRef) (string, error) {
	all, err := w.objects.Triggers(ctx, pod.Namespace, pod.String())
	if err != nil {
		return "", err
	}
	waiting := all[:0]
	for _, t := range all {
		if !w.records.Over(record.TriggerAsker(&t)) {
			waiting = append(waiting, t)
		}
	}
	if t := rules.First(waiting, pod.Name); t != nil {
		return t.Name, nil
	}
	return "", nil
}

// triggersOf returns the triggers that the change of a pod, or the deletion of a trigger for the same pod, may
// concern.
func (w *waiters) triggersOf(ctx context.Context, o client.Object) []reconcile.Request {
	pod := client.ObjectKeyFromObject(o).String()
	if t, ok := o.(*podsnapshotv1.PodSnapshotManualTrigger); ok {
		pod = objects.TargetOf(t)
	}
	all, err := w.objects.Triggers(ctx, o.GetNamespace(), pod)
	if err != nil {
		w.log.Warn("triggers not read", "error", err)
		return nil
	}
	var out []reconcile.Request
	for i := range all {
		if !rules.Ended(&all[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
	return out
}

// requesterOf returns the object that asked for a snapshot, and whether it still waits for an answer.
func (w *waiters) requesterOf(ctx context.Context, e record.Entry) (d record.Requester, open bool) {
	d = record.Requester{Namespace: e.Key.Namespace, Trigger: e.Trigger}
	if e.Trigger != "" {
		t := new(podsnapshotv1.PodSnapshotManualTrigger)
		err := w.objects.Get(ctx, client.ObjectKey{Namespace: e.Key.Namespace, Name: e.Trigger}, t)
		return d, err == nil && record.TriggerAsker(t).Made(e.Key) && !rules.Ended(t)
	}
	d.Pod = e.Pod.Name
	pod, err := w.objects.PodHere(ctx, client.ObjectKey{Namespace: e.Key.Namespace, Name: e.Pod.Name})
	if err != nil || pod == nil {
		return d, false
	}
	id := pod.Annotations[podsnapshotv1.AnnotationCheckpoint]
	s := ParseStatus(pod)
	made := record.AnnotationAsker(pod.Namespace, pod.UID, id).Made(e.Key)
	return d, made && (s.ID != id || s.State == StateCheckpointing)
}
