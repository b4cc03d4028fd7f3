package slumber

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	shimsleep "diapause.dev/runsc/sleep"
)

// TestAwake: what the condition says of a pod that no longer sleeps. It says that the pod woke only of one that did.
func TestAwake(t *testing.T) {
	slept := time.Now().Truncate(time.Second)
	lost := &waken{failure: errors.New("no such file: app.log")}
	for _, test := range []struct {
		name    string
		told    *waken
		started time.Time
		phase   corev1.PodPhase
		reason  string
		says    string
	}{
		{"woken", &waken{cause: "packet", took: time.Second}, slept.Add(-time.Hour), "", podsnapshotv1.ReasonWoke, "packet"},
		{"nobody has said how", nil, slept.Add(-time.Hour), "", podsnapshotv1.ReasonWoke, "was woken"},
		{"not woken", lost, slept.Add(-time.Hour), "", podsnapshotv1.ReasonWakeFailed, "app.log"},
		{"started anew", nil, slept.Add(time.Minute), "", podsnapshotv1.ReasonWakeFailed, "started again"},
		{"ended", nil, slept.Add(-time.Hour), corev1.PodSucceeded, podsnapshotv1.ReasonEnded, "ended"},
		{"ended as it could not be woken", lost, time.Time{}, corev1.PodFailed, podsnapshotv1.ReasonWakeFailed, "app.log"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ws := newWakes()
			s := &conditions{wakes: ws}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
			if test.told != nil {
				ws.all["u"] = *test.told
			}
			pod.Status = corev1.PodStatus{
				Phase: test.phase,
				Conditions: []corev1.PodCondition{{
					Type: podsnapshotv1.ConditionAsleep, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(slept),
				}},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(test.started)},
				}}},
			}
			c, _ := s.awake(pod)
			if c.Status != corev1.ConditionFalse || c.Reason != test.reason || !strings.Contains(c.Message, test.says) {
				t.Errorf("%+v, want %s, %s", c, test.reason, test.says)
			}
		})
	}
}

// TestWakeToldEarly: how a wake went is kept while the pod is not yet seen to have slept: the agent's view of the
// cluster may be late.
func TestWakeToldEarly(t *testing.T) {
	ws := newWakes()
	s := &conditions{wakes: ws}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}} // without a condition
	ws.all["u"] = waken{failure: errors.New("no such file: app.log"), at: time.Now()}
	if err := s.show(t.Context(), pod, shimsleep.Mark{}, false); err != nil {
		t.Fatal(err)
	}
	if c, _ := s.awake(pod); c.Reason != podsnapshotv1.ReasonWakeFailed {
		t.Errorf("%+v", c)
	}
	ws.all["u"] = waken{cause: "packet", at: time.Now().Add(-2 * wordTime)}
	if err := s.show(t.Context(), pod, shimsleep.Mark{}, false); err != nil {
		t.Fatal(err)
	}
	if _, known := ws.of("u"); known {
		t.Error("it is never forgotten")
	}
}
