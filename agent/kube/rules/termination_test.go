package rules_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		p := podsnapshotv1.PodSnapshotPolicy{}
		p.Spec.StorageConfigName = "storage"
		p.Spec.Selector.MatchLabels = map[string]string{"app": "web"}
		p.Annotations = map[string]string{podsnapshotv1.AnnotationOnTermination: value}
		all := []podsnapshotv1.PodSnapshotPolicy{p}
		ok, reason, message := rules.Verdict(&p, all, func(string) (*podsnapshotv1.PodSnapshotStorageConfig, bool) {
			c := new(podsnapshotv1.PodSnapshotStorageConfig)
			c.Spec.SnapshotStorageConfig.GCS = &podsnapshotv1.GCSStorage{Bucket: "bucket"}
			return c, true
		})
		if ok != want || !want && (reason != podsnapshotv1.ReasonInvalid ||
			!strings.Contains(message, podsnapshotv1.AnnotationOnTermination)) {
			t.Errorf("value %q: %v, %s, %s", value, ok, reason, message)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
		if got := rules.SavedOnTermination(pod, all); got != want {
			t.Errorf("value %q: saved %v", value, got)
		}
	}
}
