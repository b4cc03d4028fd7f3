package request

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// asked is an object that asks for a checkpoint. Its methods write to the API server. None of them replaces an answer
// that exists already.
type asked interface {
	requester() record.Requester
	asker() record.Asker
	podName() string
	// taken returns the UID of the pod for which this agent has taken the request, or "" if it has not.
	taken() (podUID string)
	take(ctx context.Context, pod *corev1.Pod) error
	// wait says what the answer waits for.
	wait(ctx context.Context, message string) error
	// complete says that the snapshot was made, and what a restore of it may not notice.
	complete(ctx context.Context, k snapshot.Key, warning string) error
	fail(ctx context.Context, why string) error
}

// server serves the requests for checkpoints of triggers and of annotations. It answers them.
type server struct {
	objects  *objects.Objects
	nodeName string
	records  *record.Records
	waiters  *waiters
	outcomes *outcomes
	plans    *plans
	captures *captures
}

// serve does the next step of a request for a checkpoint of a pod. Pod is nil if it is not on this node, or no
// longer.
func (sv *server) serve(ctx context.Context, a asked, pod *corev1.Pod) error {
	if uid := a.taken(); pod != nil && uid != "" && string(pod.UID) != uid {
		pod = nil // another pod has its name
	}
	if j, ok := sv.records.Jobs.Of(a.asker()); ok && j.Answered {
		return nil
	}
	k, err := sv.beganFor(ctx, a)
	if err != nil {
		return err
	}
	switch out, why := sv.outcomes.of(ctx, a.asker(), k); out {
	case failed:
		return sv.refuse(ctx, a, pod, why)
	case runsOn, safe:
		p, err := sv.outcomes.publication(ctx, k)
		switch {
		case err != nil:
			return err
		case p.lost != "":
			return sv.refuse(ctx, a, pod, p.lost)
		case p.waits != "":
			return client.IgnoreNotFound(a.wait(ctx, p.waits))
		case !p.ready:
			return nil // the request is requeued
		case out == runsOn:
			return sv.refuse(ctx, a, pod, fmt.Sprintf("PodSnapshot %s was made, but the pod was not stopped and runs on: %s", k,
				why))
		}
		return sv.answer(a, a.complete(ctx, k, p.warning))
	case underWay:
		return nil
	}
	return sv.takeUp(ctx, a, pod)
}

// beganFor returns the key of the snapshot that was begun for a request, or a zero key if none was. If this node took
// the request and has forgotten the snapshot, the PodSnapshot may still show it.
func (sv *server) beganFor(ctx context.Context, a asked) (snapshot.Key, error) {
	k := sv.records.KeyOf(a.asker())
	if k.Name != "" || a.taken() == "" {
		return k, nil
	}
	var all podsnapshotv1.PodSnapshotList
	err := sv.objects.List(ctx, &all, client.InNamespace(a.asker().Namespace()), client.UnsafeDisableDeepCopy)
	if err != nil {
		return k, fmt.Errorf("read PodSnapshots of namespace %s: %w", a.asker().Namespace(), err)
	}
	for i := range all.Items {
		if k := objects.KeyOf(&all.Items[i]); a.asker().Made(k) {
			return k, nil
		}
	}
	return k, nil
}

// takeUp begins a request of which nothing is known yet, if it is the request's turn.
func (sv *server) takeUp(ctx context.Context, a asked, pod *corev1.Pod) error {
	switch {
	case pod == nil && a.taken() != "":
		return sv.refuse(ctx, a, nil, fmt.Sprintf("pod %s/%s was gone before it was checkpointed", a.asker().Namespace(),
			a.podName()))
	case pod == nil:
		return nil // it is on another node
	case sv.records.Jobs.Busy(string(pod.UID)):
		return nil // nextTurn requeues the request
	}
	if a.taken() == "" {
		if pod = sv.objects.PodNow(ctx, pod); pod == nil {
			return nil // it is requeued when the cache learns of the change
		}
	}
	plan, err := sv.plans.prepare(ctx, pod)
	if rules.Refused(err) {
		return sv.refuse(ctx, a, pod, err.Error())
	}
	if err != nil {
		return err
	}
	if a.taken() == "" {
		if err := a.take(ctx, pod); err != nil {
			return err
		}
	}
	sv.captures.begin(&record.Job{Asker: a.asker(), Pod: objects.RefOf(pod), Plan: plan, Requester: a.requester()})
	return nil
}

// refuse answers with the reason why the request has failed, and makes an event on the pod.
func (sv *server) refuse(ctx context.Context, a asked, pod *corev1.Pod, why string) error {
	err := a.fail(ctx, why)
	if err == nil && pod != nil {
		sv.objects.Events.Pod(objects.RefOf(pod), a.asker().About(), notice.NotCheckpointed, why)
	}
	return sv.answer(a, err)
}

// answer records that a request was answered. If its object is gone by then, that is as good.
func (sv *server) answer(a asked, err error) error {
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	sv.records.Jobs.Answered(a.asker())
	return nil
}

// close ends a request whose answer was seen.
func (sv *server) close(a asked) error {
	k := sv.records.KeyOf(a.asker())
	if !sv.records.Jobs.Close(a.asker()) {
		return nil
	}
	if e, ok := sv.records.Ledger.Get(k); ok && (e.Deleted || e.Published == "") {
		return sv.records.Ledger.Drop(k)
	}
	return nil
}
