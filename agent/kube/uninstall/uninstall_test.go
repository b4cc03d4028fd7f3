package uninstall

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// TestCheck: only what nobody could wake or delete later stands against a removal, and the error names it.
func TestCheck(t *testing.T) {
	awake := pod("awake", corev1.PodRunning, corev1.ConditionFalse)
	ended := pod("ended", corev1.PodSucceeded, corev1.ConditionTrue)
	kept := &podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "kept"}}
	asleep := pod("asleep", corev1.PodRunning, corev1.ConditionTrue)
	agentPod := pod("agent", corev1.PodRunning, corev1.ConditionFalse)
	agentPod.Labels = map[string]string{"app.kubernetes.io/name": agent}
	now := metav1.NewTime(time.Unix(1, 0))
	going := &podsnapshotv1.PodSnapshot{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "going", DeletionTimestamp: &now, Finalizers: []string{podsnapshotv1.Finalizer},
	}}
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"nothing":            {},
		"nothing in the way": {objects: []client.Object{agentPod, awake, ended, kept}},
		"agents are gone":    {objects: []client.Object{awake, going}},
		"a pod sleeps":       {[]client.Object{awake, asleep}, []string{"1 pods sleep", "first: ns/asleep"}},
		"a snapshot goes":    {[]client.Object{agentPod, kept, going}, []string{"1 PodSnapshots", "it: ns/going"}},
		"both":               {[]client.Object{agentPod, asleep, going}, []string{"ns/asleep", "ns/going"}},
	} {
		t.Run(name, func(t *testing.T) { checks(t, c.objects, c.want) })
	}
}

// TestCheckMany: of many pods the error names some, and their number.
func TestCheckMany(t *testing.T) {
	var all []client.Object
	for i := range most + 2 {
		all = append(all, pod(fmt.Sprintf("pod-%02d", i), corev1.PodRunning, corev1.ConditionTrue))
	}
	checks(t, all, []string{"22 pods sleep", "ns/pod-19, ..."})
}

// checks has these objects checked. The error must say all of want; nothing stands in the way if want is empty.
func checks(t *testing.T, objects []client.Object, want []string) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, podsnapshotv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	err := Check(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build())
	if len(want) == 0 && err != nil || len(want) > 0 && err == nil {
		t.Fatalf("got %v, want %q", err, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in %q", w, err)
		}
	}
}

func pod(name string, phase corev1.PodPhase, asleep corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Status: corev1.PodStatus{
			Phase:      phase,
			Conditions: []corev1.PodCondition{{Type: podsnapshotv1.ConditionAsleep, Status: asleep}},
		},
	}
}
