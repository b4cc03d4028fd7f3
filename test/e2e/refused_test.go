package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
)

// TestRefused tries to restore pods that must not have a snapshot: each starts anew, or fails if it
// asks for that, and says why.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.must(w.client.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace,
		Name:      "other",
	}}))
	n := w.Node(0)
	first := w.run(w.pod("web", on(n)))
	before := w.life(first)
	s := w.checkpoint(first)
	for _, x := range []struct {
		name, why string
		change    func(*corev1.Pod)
	}{
		{"account", "service account", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "other" }},
		{"command", "command", command("/bin/workload", "serve", "--mib=8")},
		{"image", "image", func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = images.Busybox
			command("sleep", "1000")(p)
		}},
		{"mount", "mount", func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes,
				corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "more", MountPath: "/more"}}
		}},
		{"missing", "no PodSnapshot", from("no-such-snapshot")},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := *w
			w.TB = t
			change := []func(*corev1.Pod){on(n), from(s.name), x.change}
			w.refuses(w.run(w.pod("not-"+x.name, change...)), x.why)
			fails := w.pod("fails-"+x.name, append(change, orFail)...)
			w.must(w.client.Create(w.ctx, fails))
			w.eventually("the refusal", func() error { return w.refusal("fails-"+x.name, x.why) })
			w.remove("fails-" + x.name)
		})
	}
	w.sound(first)
	w.remove("web")
	w.restored(w.run(w.pod("web", on(n))), s.name, before)
}

// TestOtherNamespace tries to restore another namespace's snapshot.
func TestOtherNamespace(t *testing.T) {
	t.Parallel()
	w := begin(t)
	first := w.run(w.pod("web"))
	before := w.life(first)
	s := w.checkpoint(first)
	theirs := *w
	theirs.namespace = w.newNamespace(w.namespace + "-b")
	for _, name := range []string{s.name, w.namespace + "/" + s.name} {
		p := theirs.run(theirs.pod("web", on(w.Node(0)), from(name)))
		theirs.cold(p, before, "namespace")
		theirs.remove("web")
	}
}

// orFail has a pod fail that cannot be restored.
func orFail(p *corev1.Pod) {
	p.Annotations[podsnapshotv1.AnnotationOnRestoreFailure] = podsnapshotv1.OnRestoreFailureFail
}

// refuses fails unless a pod was not restored, and says why.
func (w *world) refuses(p *ready, why string) {
	w.Helper()
	c := condition(p.Pod, podsnapshotv1.ConditionPodRestored)
	if c.Status != corev1.ConditionFalse || c.Reason != podsnapshotv1.ReasonFailedToRestore ||
		!strings.Contains(c.Message, why) {
		w.Errorf("pod %s was Ready with PodRestored %q %q %q, want False because of %q", p.Name, c.Status, c.Reason,
			c.Message, why)
	}
}

// refusal returns an error unless a pod is not Ready, and has an event and a condition that say why.
func (w *world) refusal(name, why string) error {
	p := w.current(name)
	if condition(p.Pod, corev1.PodReady).Status == corev1.ConditionTrue {
		w.Fatalf("pod %s is Ready", name)
	}
	if c := condition(p.Pod, podsnapshotv1.ConditionPodRestored); c.Status != corev1.ConditionFalse ||
		!strings.Contains(c.Message, why) {
		return errNotYet
	}
	return w.event(name, warning(why))
}

// warning accepts a warning of Diapause that says why.
func warning(why string) func(*corev1.Event) bool {
	return func(e *corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.Reason == podsnapshotv1.EventReason && strings.Contains(e.Message, why)
	}
}
