package request

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// asked is an object that asks for a checkpoint. Its methods write to the API server. None of them replaces an answer
// that exists already.
type asked interface {
	requester() requester
	asker() asker
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

// serve does the next step of a request for a checkpoint of a pod. Pod is nil if it is not on this node, or no
// longer.
func (rs *Requests) serve(ctx context.Context, a asked, pod *corev1.Pod) error {
	if uid := a.taken(); pod != nil && uid != "" && string(pod.UID) != uid {
		pod = nil // another pod has its name
	}
	if j, ok := rs.jobs.of(a.asker()); ok && j.answered {
		return nil
	}
	k, err := rs.beganFor(ctx, a)
	if err != nil {
		return err
	}
	switch out, why := rs.outcome(ctx, a.asker(), k); out {
	case failed:
		return rs.refuse(ctx, a, pod, why)
	case runsOn, safe:
		p, err := rs.published(ctx, k)
		switch {
		case err != nil:
			return err
		case p.lost != "":
			return rs.refuse(ctx, a, pod, p.lost)
		case p.waits != "":
			return client.IgnoreNotFound(a.wait(ctx, p.waits))
		case !p.ready:
			return nil // the request is requeued
		case out == runsOn:
			return rs.refuse(ctx, a, pod, fmt.Sprintf("PodSnapshot %s was made, but the pod was not stopped and runs on: %s", k,
				why))
		}
		return rs.answer(a, a.complete(ctx, k, p.warning))
	case underWay:
		return nil
	}
	return rs.takeUp(ctx, a, pod)
}

// publication is what has become of the PodSnapshot of a successful checkpoint.
type publication struct {
	ready bool
	// warning says what a restore may not notice, once it is ready.
	warning string
	waits   string // what it waits for, if it is time to say so
	lost    string // why it is not Ready and, for the object that asked, never will be
}

// published returns what has become of the PodSnapshot of a successful checkpoint. If that is nothing yet, it requeues
// the PodSnapshot, which later requeues the object that asked.
func (rs *Requests) published(ctx context.Context, k snapshot.Key) (publication, error) {
	s, err := rs.Objects.PodSnapshot(ctx, k)
	switch {
	case err != nil:
	case s != nil && rules.Lost(s):
		return publication{lost: rules.WhyNotReady(s)}, nil
	case s != nil && rules.Ready(s):
		return publication{ready: true, warning: rules.Warning(s)}, nil
	case s != nil:
		waits, lost := unconfirmed(k, s)
		if waits != "" && rules.Silence(s, time.Now()) > 0 {
			return publication{}, nil // announce requeues the request
		}
		if waits != "" || lost != "" {
			return publication{waits: waits, lost: lost}, nil
		}
	default:
		q, known := rs.reported.get(k)
		if !known {
			break
		}
		there, err := rs.stored(ctx, q)
		if err == nil && !there {
			return publication{lost: fmt.Sprintf("snapshot %s was removed before it became a PodSnapshot", k)}, nil
		}
	}
	rs.snapshots.Kick(objects.Named(k))
	return publication{}, err
}

// beganFor returns the key of the snapshot that was begun for a request, or a zero key if none was. If this node took
// the request and has forgotten the snapshot, the PodSnapshot may still show it.
func (rs *Requests) beganFor(ctx context.Context, a asked) (snapshot.Key, error) {
	k := rs.keyOf(a.asker())
	if k.Name != "" || a.taken() == "" {
		return k, nil
	}
	var all podsnapshotv1.PodSnapshotList
	err := rs.Objects.List(ctx, &all, client.InNamespace(a.asker().namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return k, fmt.Errorf("read PodSnapshots of namespace %s: %w", a.asker().namespace, err)
	}
	for i := range all.Items {
		if k := objects.KeyOf(&all.Items[i]); a.asker().made(k) {
			return k, nil
		}
	}
	return k, nil
}

// takeUp begins a request of which nothing is known yet, if it is the request's turn.
func (rs *Requests) takeUp(ctx context.Context, a asked, pod *corev1.Pod) error {
	switch {
	case pod == nil && a.taken() != "":
		return rs.refuse(ctx, a, nil, fmt.Sprintf("pod %s/%s was gone before it was checkpointed", a.asker().namespace,
			a.podName()))
	case pod == nil:
		return nil // it is on another node
	case rs.jobs.busy(string(pod.UID)):
		return nil // nextTurn requeues the request
	}
	if a.taken() == "" {
		if pod = rs.Objects.PodNow(ctx, pod); pod == nil {
			return nil // it is requeued when the cache learns of the change
		}
	}
	plan, err := rs.prepare(ctx, pod)
	if rules.Refused(err) {
		return rs.refuse(ctx, a, pod, err.Error())
	}
	if err != nil {
		return err
	}
	if a.taken() == "" {
		if err := a.take(ctx, pod); err != nil {
			return err
		}
	}
	rs.begin(&job{asker: a.asker(), pod: objects.RefOf(pod), plan: plan, requester: a.requester()})
	return nil
}

// refuse answers with the reason why the request has failed, and makes an event on the pod.
func (rs *Requests) refuse(ctx context.Context, a asked, pod *corev1.Pod, why string) error {
	err := a.fail(ctx, why)
	if err == nil && pod != nil {
		rs.Objects.Event(objects.RefOf(pod), a.asker().about(), corev1.EventTypeWarning, objects.ActionCheckpoint,
			fmt.Sprintf("Failed to checkpoint the pod: %s", why))
	}
	return rs.answer(a, err)
}

// answer records that a request was answered. If its object is gone by then, that is as good.
func (rs *Requests) answer(a asked, err error) error {
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	rs.jobs.answered(a.asker())
	return nil
}

// close ends a request whose answer was seen.
func (rs *Requests) close(a asked) error {
	k := rs.keyOf(a.asker())
	if !rs.jobs.close(a.asker()) {
		return nil
	}
	if e, ok := rs.ledger.get(k); ok && (e.Deleted || e.Published == "") {
		return rs.ledger.drop(k)
	}
	return nil
}

// prepare returns the plan for a pod's checkpoint, or a refusal.
func (rs *Requests) prepare(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	return rs.prepareBy(ctx, pod, rules.Prepare)
}

// prepareBy returns the plan that a rule makes for a pod's checkpoint, or a refusal.
func (rs *Requests) prepareBy(ctx context.Context, pod *corev1.Pod,
	rule func(*corev1.Pod, []podsnapshotv1.PodSnapshotPolicy, rules.Find) (*rules.Plan, error),
) (*rules.Plan, error) {
	policies, find, err := rs.Objects.Rules(ctx, pod.Namespace, rs.Objects.List)
	if err != nil {
		return nil, err
	}
	plan, err := rule(pod, policies, find)
	if !rules.Refused(err) {
		return plan, err
	}
	policies, find, err = rs.Objects.Rules(ctx, pod.Namespace, rs.Objects.Fresh) // the cache may be behind
	if err != nil {
		return nil, err
	}
	return rule(pod, policies, find)
}
