package rules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// TestHostileContradicts: a PodSnapshot is confirmed only if what it says of its pod is what the API server says.
func TestHostileContradicts(t *testing.T) {
	here := func(p *corev1.Pod) { p.Spec.NodeName = "a" }
	origin := both(annotate(podsnapshotv1.AnnotationOriginNode, "a"), annotate(podsnapshotv1.AnnotationOriginPodUID, "u"))
	none := func(*podsnapshotv1.PodSnapshot) {}
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod)
		edit func(*podsnapshotv1.PodSnapshot)
		want string
	}{
		"the same": {here, none, ""},
		"an earlier agent's": {
			here, func(s *podsnapshotv1.PodSnapshot) { delete(s.Annotations, podsnapshotv1.AnnotationOriginPodUID) }, "",
		},
		"another node":    {func(p *corev1.Pod) { p.Spec.NodeName = "b" }, none, `was on node "b"`},
		"no node":         {func(*corev1.Pod) {}, none, `was on node ""`},
		"another UID":     {both2(here, func(p *corev1.Pod) { p.UID = "v" }), none, "the UID of its pod"},
		"another account": {here, annotate(podsnapshotv1.AnnotationServiceAccount, "root"), "service account"},
		"another spec":    {here, annotate(podsnapshotv1.AnnotationSpecHash, "v1:0"), "another spec"},
		"no spec":         {here, annotate(podsnapshotv1.AnnotationSpecHash, ""), "another spec"},
		"other labels":    {here, func(s *podsnapshotv1.PodSnapshot) { s.Labels["app"] = "db" }, "other labels"},
		"a mirror": {
			both2(here, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }), none,
			"made by a kubelet",
		},
	} {
		s := ready("a", 1, origin, c.edit)
		got := rules.SeenOf(pod(c.pod)).Contradicts(&s)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func both2(a, b func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a(p)
		b(p)
	}
}

// TestKnown: a node restores its own snapshots, and of others those that are confirmed. It waits for those that may be.
func TestKnown(t *testing.T) {
	from, says := podsnapshotv1.AnnotationOriginNode, podsnapshotv1.AnnotationConfirmed
	young, old := epoch.Add(2*time.Second), epoch.Add(time.Hour)
	for name, c := range map[string]struct {
		edit func(*podsnapshotv1.PodSnapshot)
		now  time.Time
		want string // "": restored; "wait"; or the refusal
	}{
		"its own":          {annotate(from, "here"), old, ""},
		"its own, doubted": {both(annotate(from, "here"), annotate(says, "no")), old, ""},
		"confirmed":        {both(annotate(from, "there"), annotate(says, "true")), old, ""},
		"young":            {annotate(from, "there"), young, "wait"},
		"old":              {annotate(from, "there"), old, "has not looked at it"},
		"of no node":       {annotate("x", "y"), old, "has not looked at it"},
		"doubted":          {both(annotate(from, "there"), annotate(says, "no pod")), young, "only on node there: no pod"},
	} {
		s, p := ready("a", 1, both(annotate(says, ""), c.edit)), policy("p")
		start := rules.NewPod{Pod: pod(), Facts: facts, Node: "here", Now: c.now}
		newest, err := start.NewestOf(&p, []podsnapshotv1.PodSnapshot{s})
		for how, err := range map[string]error{"named": start.Named("a", &s), "newest": err} {
			switch c.want {
			case "":
				if err != nil {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			case "wait":
				if !errors.Is(err, rules.ErrPending) {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			default:
				if !rules.Refused(err) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, %s: %v, want %q", name, how, err, c.want)
				}
			}
		}
		if (newest != nil) != (c.want == "") {
			t.Errorf("%s: the newest is %v", name, newest)
		}
	}
}

// TestSilence: nobody hears of the wait for a confirmation in its first two seconds, whatever a node's clock does.
func TestSilence(t *testing.T) {
	s := ready("a", 1)
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].LastTransitionTime = metav1.NewTime(epoch)
	}
	for after, want := range map[time.Duration]time.Duration{
		0: 2 * time.Second, time.Second: time.Second, 2 * time.Second: 0, time.Hour: 0, -time.Hour: 2 * time.Second,
	} {
		if got := rules.Silence(&s, epoch.Add(after)); got != want {
			t.Errorf("%v after the capture: %v, want %v", after, got, want)
		}
	}
	s.Status.Conditions = nil
	if got := rules.Silence(&s, epoch); got != 2*time.Second {
		t.Errorf("before the capture: %v", got)
	}
}
