package rules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// TestTimeToSave: a quarter of the rest of the grace period stays for the pod's own end, between one second and ten. A
// wrong clock gives no more than the grace period.
func TestTimeToSave(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		grace int64
		left  time.Duration // until the deletion timestamp
		want  time.Duration // 0: it is refused
	}{
		{30, 20 * time.Second, 15 * time.Second},
		{30, 30 * time.Second, 22500 * time.Millisecond},
		{600, 600 * time.Second, 590 * time.Second},
		{3, 3 * time.Second, 2 * time.Second},
		{30, time.Hour, 22500 * time.Millisecond},
		{1, time.Second, 0},
		{30, 1900 * time.Millisecond, 0},
		{30, -time.Hour, 0},
		{0, 0, 0},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: new(metav1.NewTime(now.Add(tc.left))), DeletionGracePeriodSeconds: &tc.grace,
		}}
		got, err := rules.TimeToSave(pod, now)
		if got != tc.want || (err != nil) != (tc.want == 0) || err != nil && !rules.Refused(err) {
			t.Errorf("grace %d s, %v left: %v, %v, want %v", tc.grace, tc.left, got, err, tc.want)
		}
	}
	if _, err := rules.TimeToSave(new(corev1.Pod), now); err == nil {
		t.Error("a pod that is not being deleted has time")
	}
}

// TestOnTerminationValue: a policy whose annotation has an unknown value is not Ready, and has no pod saved.
func TestOnTerminationValue(t *testing.T) {
	for value, want := range map[string]bool{podsnapshotv1.OnTerminationCheckpoint: true, "Checkpoint": false, "": false} {
		p := annotatedPolicy(podsnapshotv1.AnnotationOnTermination, value)
		checkVerdict(t, p, podsnapshotv1.AnnotationOnTermination, want)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
		if got := rules.SavedOnTermination(pod, []podsnapshotv1.PodSnapshotPolicy{p}); got != want {
			t.Errorf("value %q: saved %v", value, got)
		}
	}
}

// TestOnRestoreFailureValue: a policy whose annotation has an unknown value is not Ready.
func TestOnRestoreFailureValue(t *testing.T) {
	for value, want := range map[string]bool{"Fail": true, "ColdStart": true, "fail": false, "": false} {
		p := annotatedPolicy(podsnapshotv1.AnnotationOnRestoreFailure, value)
		checkVerdict(t, p, podsnapshotv1.AnnotationOnRestoreFailure, want)
	}
}

func annotatedPolicy(annotation, value string) podsnapshotv1.PodSnapshotPolicy {
	p := podsnapshotv1.PodSnapshotPolicy{}
	p.Spec.StorageConfigName = "storage"
	p.Spec.Selector.MatchLabels = map[string]string{"app": "web"}
	p.Annotations = map[string]string{annotation: value}
	return p
}

// TestOnSandboxLossValue: a policy whose annotation has an unknown value is not Ready, and has no pod restored that has
// run.
func TestOnSandboxLossValue(t *testing.T) {
	for value, want := range map[string]bool{podsnapshotv1.OnSandboxLossRestoreLatest: true, "restore": false, "": false} {
		p := annotatedPolicy(podsnapshotv1.AnnotationOnSandboxLoss, value)
		checkVerdict(t, p, podsnapshotv1.AnnotationOnSandboxLoss, want)
		if got := rules.RestoresLost(&p); got != want {
			t.Errorf("%q: restores lost pods: %v, want %v", value, got, want)
		}
	}
}

// checkVerdict checks whether a policy is Ready. If it is not, the message must name an annotation.
func checkVerdict(t *testing.T, p podsnapshotv1.PodSnapshotPolicy, annotation string, want bool) {
	t.Helper()
	ok, reason, message := rules.Verdict(&p, []podsnapshotv1.PodSnapshotPolicy{p},
		func(string) (*podsnapshotv1.PodSnapshotStorageConfig, bool) {
			c := new(podsnapshotv1.PodSnapshotStorageConfig)
			c.Spec.SnapshotStorageConfig.GCS = &podsnapshotv1.GCSStorage{Bucket: "bucket"}
			return c, true
		})
	if ok != want || !want && (reason != podsnapshotv1.ReasonInvalid || !strings.Contains(message, annotation)) {
		t.Errorf("annotations %q: %v, %s, %s", p.Annotations, ok, reason, message)
	}
}

// TestPredecessors: a pod waits for those of its controller and group that are within their grace periods, until each
// of them has been saved since it was deleted.
func TestPredecessors(t *testing.T) {
	now := time.Now()
	policy := &podsnapshotv1.PodSnapshotPolicy{}
	policy.Spec.SnapshotGroupingRules = &podsnapshotv1.SnapshotGroupingRules{
		GroupByLabelValue: podsnapshotv1.GroupByLabelValue{Labels: []string{"group"}},
	}
	pod := func(uid string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: uid, UID: types.UID(uid), Labels: map[string]string{"group": "a"},
			OwnerReferences: []metav1.OwnerReference{{UID: "replicas", Controller: new(true)}},
		}}
		p.Status.Phase = corev1.PodRunning
		for _, c := range change {
			c(&p)
		}
		return p
	}
	deleted := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(now.Add(20*time.Second))), new(int64(30))
	}
	is := rules.NewPod{Pod: new(pod("new")), Now: now}
	got := is.Predecessors(policy, []corev1.Pod{
		*is.Pod, pod("runs"), pod("ending", deleted),
		pod("late", deleted, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }),
		pod("of another group", deleted, func(p *corev1.Pod) { p.Labels["group"] = "b" }),
		pod("of another controller", deleted, func(p *corev1.Pod) { p.OwnerReferences[0].UID = "others" }),
		pod("of none", deleted, func(p *corev1.Pod) { p.OwnerReferences = nil }),
		pod("ended", deleted, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
	})
	if len(got) != 1 || got[0].Name != "ending" {
		t.Fatalf("predecessors: %+v", got)
	}
	alone := rules.NewPod{Pod: new(pod("alone", func(p *corev1.Pod) { p.OwnerReferences = nil })), Now: now}
	if got := alone.Predecessors(policy, []corev1.Pod{pod("ending", deleted)}); len(got) > 0 {
		t.Errorf("a pod without a controller replaces %+v", got)
	}
	snapshot := func(of string, at time.Time, status metav1.ConditionStatus) podsnapshotv1.PodSnapshot {
		s := podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(at), Annotations: map[string]string{podsnapshotv1.AnnotationOriginPodUID: of},
		}}
		s.Status.Conditions = []metav1.Condition{{Type: podsnapshotv1.ConditionCheckpoint, Status: status}}
		return s
	}
	for name, tc := range map[string]struct {
		snapshot podsnapshotv1.PodSnapshot
		saved    bool
	}{
		"saved at its end": {snapshot("ending", now, metav1.ConditionTrue), true},
		"being saved":      {snapshot("ending", now, metav1.ConditionFalse), false},
		"saved before":     {snapshot("ending", now.Add(-11*time.Second), metav1.ConditionTrue), false},
		"another pod's":    {snapshot("runs", now, metav1.ConditionTrue), false},
	} {
		err := rules.Saved(got, []podsnapshotv1.PodSnapshot{tc.snapshot})
		if tc.saved != (err == nil) || err != nil && !errors.Is(err, rules.ErrPending) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
