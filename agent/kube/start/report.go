package start

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/hostfile"
)

// report is the part of a restore's outcome that is not yet written to the API server.
type report struct {
	pod      snapshot.PodRef
	key      snapshot.Key
	restored bool   // the snapshot's time of use must be written
	patch    []byte // of the pod's status; nil: written already
	turn     *turn  // among the pod's outcomes
	until    time.Time
}

const (
	// maxReports bounds how many reports wait for the API server.
	maxReports = 1000
	// writeTime is how long Restored and NotRestored wait for the API server.
	writeTime = 2 * time.Second
	// reportTime is how long a report is retried.
	reportTime = 10 * time.Minute
	// reportPause is the time between two attempts.
	reportPause = 200 * time.Millisecond
)

// Reporter reports how the restores of this node's pods went: in conditions, in events, and in the times at which
// snapshots were used. It is made before the agent's parts, which report to it. Its methods may be called concurrently.
type Reporter struct {
	objects  *objects.Objects
	now      func() time.Time // the API server's clock, if it is known
	attempts *attempts
	reports  chan report
	turns    *turns
	log      *slog.Logger
}

// NewReporter returns the reporter of a node. Local is this node's clock.
func NewReporter(o *objects.Objects, local func() time.Time, log *slog.Logger) *Reporter {
	return &Reporter{
		objects: o, now: func() time.Time { return timeNow(o.Clock, local) }, attempts: newAttempts(),
		reports: make(chan report, maxReports), turns: newTurns(), log: log,
	}
}

// timeNow returns the API server's time, or this node's if that is not known.
func timeNow(clock *objects.Clock, local func() time.Time) time.Time {
	if now, err := clock.Now(); err == nil {
		return now
	}
	return local()
}

// Restored reports that a pod was restored. It writes the condition PodRestored before it returns. If the API server
// does not answer in time, it returns an error and keeps nothing of the report: this process may end before the API
// server is back. The pod's shim, which lives as long as the pod, reports again.
func (rp *Reporter) Restored(ctx context.Context, ref snapshot.PodRef, key snapshot.Key) error {
	rp.attempts.note(ref, nil)
	condition := corev1.PodCondition{
		Type: podsnapshotv1.ConditionPodRestored, Status: corev1.ConditionTrue, Reason: podsnapshotv1.ReasonRestored,
		Message: notice.Restored.Say(key),
	}
	r := report{pod: ref, key: key, restored: true, patch: conditionPatch(ref, condition), turn: rp.turns.begin(ref)}
	defer r.turn.end()
	if !rp.tryReport(ctx, &r) {
		return fmt.Errorf("the API server has not been told within %v that pod %s is restored from %s", writeTime, ref, key)
	}
	rp.objects.Events.Pod(ref, key, notice.Restored, key)
	rp.reportLater(r)
	return nil
}

// NotRestored reports that a pod was not restored. If the API server answers in time, it writes the condition
// PodRestored before it returns. Otherwise it retries in the background.
func (rp *Reporter) NotRestored(ctx context.Context, ref snapshot.PodRef, key snapshot.Key, failure error) {
	rp.attempts.note(ref, failure)
	r := report{pod: ref, key: key, turn: rp.turns.begin(ref), patch: conditionPatch(ref, corev1.PodCondition{
		Type: podsnapshotv1.ConditionPodRestored, Status: corev1.ConditionFalse,
		Reason: whyNot(failure), Message: rules.Message(failure.Error()),
	})}
	written := rp.tryReport(ctx, &r)
	rp.objects.Events.Pod(ref, key, notice.NotRestored, failure)
	if written {
		r.turn.end()
	} else {
		rp.reportLater(r)
	}
}

// whyNot returns the reason of the condition of a pod that was not restored.
func whyNot(failure error) string {
	if errors.Is(failure, hostfile.ErrChanged) {
		return podsnapshotv1.ReasonVolumeChanged
	}
	return podsnapshotv1.ReasonFailedToRestore
}

// startsAnew makes an event on a pod that has run, and starts anew. Advice says how it would not. If the pod was
// restored before, the condition PodRestored becomes False in the background: what was restored is lost.
func (rp *Reporter) startsAnew(pod *corev1.Pod, advice string) {
	ref := objects.RefOf(pod)
	rp.objects.Events.Pod(ref, snapshot.Key{}, notice.LostSandbox, advice)
	for _, c := range pod.Status.Conditions {
		if c.Type == podsnapshotv1.ConditionPodRestored && c.Status == corev1.ConditionTrue {
			rp.reportLater(report{pod: ref, turn: rp.turns.begin(ref), patch: conditionPatch(ref, corev1.PodCondition{
				Type: podsnapshotv1.ConditionPodRestored, Status: corev1.ConditionFalse,
				Reason: podsnapshotv1.ReasonSandboxLost, Message: notice.LostSandbox.Say(advice),
			})})
		}
	}
}

// tryReport writes a pod's condition within writeTime. It reports whether the condition is done.
func (rp *Reporter) tryReport(ctx context.Context, r *report) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	for !rp.writeReport(ctx, r) {
		select {
		case <-time.After(reportPause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// reportLater writes the rest of a report in the background.
func (rp *Reporter) reportLater(r report) {
	r.until = time.Now().Add(reportTime)
	select {
	case rp.reports <- r:
	default:
		r.turn.end()
		rp.log.Error("too much waits for the API server; a restore is not reported", "pod", r.pod.String())
	}
}

// conditionPatch returns a strategic merge patch that sets a condition of the pod with this UID.
func conditionPatch(ref snapshot.PodRef, condition corev1.PodCondition) []byte {
	type condensed struct {
		Type               corev1.PodConditionType `json:"type"`
		Status             corev1.ConditionStatus  `json:"status"`
		Reason             string                  `json:"reason"`
		Message            string                  `json:"message"`
		LastTransitionTime metav1.Time             `json:"lastTransitionTime"`
	}
	metadata := map[string]string{}
	if ref.UID != "" {
		metadata["uid"] = ref.UID
	}
	b, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"status": map[string]any{"conditions": []condensed{{
			condition.Type, condition.Status, condition.Reason, condition.Message, metav1.Now(),
		}}},
	})
	if err != nil {
		panic(fmt.Sprintf("encode condition: %v", err)) // strings and a time can be encoded
	}
	return b
}

// writeReport writes a pod's condition once, unless there is a newer outcome of the pod. It reports whether the
// condition is done.
func (rp *Reporter) writeReport(ctx context.Context, r *report) bool {
	done := r.turn.write(ctx, func() bool { return rp.writeCondition(ctx, r) })
	if done {
		r.patch = nil
	}
	return done
}

// writeCondition is writeReport in the report's turn.
func (rp *Reporter) writeCondition(ctx context.Context, r *report) bool {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.pod.Namespace, Name: r.pod.Name}}
	err := rp.objects.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, r.patch))
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return true
	case apierrors.IsConflict(err), apierrors.IsInvalid(err): // the pod has another UID
		rp.log.Info("PodRestored not written, the pod is gone", "pod", r.pod.String(), "error", err)
		return true
	}
	rp.log.Warn("PodRestored not written yet", "pod", r.pod.String(), "error", err)
	return false
}

// Run writes what could not be written at once, and the times at which snapshots were used, until ctx is done.
func (rp *Reporter) Run(ctx context.Context) {
	var waiting []report
	for {
		var retry <-chan time.Time
		reports := rp.reports
		if len(waiting) > 0 {
			retry = time.After(reportPause)
		}
		if len(waiting) >= maxReports {
			reports = nil
		}
		select {
		case <-ctx.Done():
			return
		case r := <-reports:
			waiting = append(waiting, r)
		case <-retry:
		}
		left := waiting[:0]
		for _, r := range waiting {
			if !rp.sendReport(ctx, &r) && time.Now().Before(r.until) {
				left = append(left, r)
			} else {
				r.turn.end()
			}
		}
		waiting = left
	}
}

// sendReport writes the rest of a report, and reports whether the report is done.
func (rp *Reporter) sendReport(ctx context.Context, r *report) bool {
	if r.patch != nil && !rp.writeReport(ctx, r) {
		return false
	}
	return !r.restored || rp.used(ctx, r.key) == nil
}

// used records that a snapshot was restored from.
func (rp *Reporter) used(ctx context.Context, k snapshot.Key) error {
	s, err := rp.objects.PodSnapshot(ctx, k)
	if err != nil || s == nil {
		return err
	}
	policy, err := rp.objects.PolicyOf(ctx, s)
	if err != nil {
		return err
	}
	now := metav1.NewTime(rp.now())
	if t := s.Status.LastAccessTime; t != nil && now.Sub(t.Time) < rules.AccessStep(policy) {
		return nil
	}
	before := s.DeepCopy()
	s.Status.LastAccessTime = &now
	err = rp.objects.Status().Patch(ctx, s, client.MergeFrom(before))
	if client.IgnoreNotFound(err) != nil && !errors.Is(err, context.Canceled) {
		rp.log.Warn("time of use not written yet", "snapshot", k.String(), "error", err)
	}
	return client.IgnoreNotFound(err)
}
