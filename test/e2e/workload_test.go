package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
	"diapause.dev/test/pages"
)

// workloadPolicy has pods save themselves, and ends them afterwards.
const workloadPolicy = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata: {name: policy, namespace: %s}
spec:
  storageConfigName: storage
  selector: {matchLabels: {app: workload}}
  triggerConfig: {type: workload, postCheckpoint: stop}
`

// selfSaving is the script of a container that has its pod saved as soon as it runs, as the page says. Its keys are
// renewed by a program that leaves a note.
func selfSaving(t *testing.T) string {
	t.Helper()
	return `export boot=$(head -c 8 /dev/urandom | od -An -tx8 | tr -d ' ')
printf '#!/bin/sh\necho "$boot restore" > /tmp/told\n' > /bin/renew-keys; chmod 755 /bin/renew-keys
` + pages.Text(t, "../..", "docs/tasks/application.md", "exec 3<>/proc/gvisor/checkpoint") + `
while [ ! -e /tmp/end ]; do usleep 10000; done`
}

// TestWorkloadSaves has a pod save itself: it is Completed, and the next pod of its kind goes on
// from there.
func TestWorkloadSaves(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(workloadPolicy, w.namespace))
	selfSaver := func(p *corev1.Pod) {
		p.Annotations["dev.gvisor.internal.checkpoint.enable"] = "true"
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = images.Busybox, []string{"/bin/sh", "-c", selfSaving(t)}
	}
	w.completes(w.pod("first", selfSaver))
	all := w.snapshots()
	if len(all) != 1 || all[0].Spec.PolicyName != "policy" ||
		!meta.IsStatusConditionTrue(all[0].Status.Conditions, podsnapshotv1.ConditionReady) {
		t.Fatalf("PodSnapshots %+v", all)
	}
	second := w.run(w.pod("second", selfSaver))
	if c := condition(second.Pod, podsnapshotv1.ConditionPodRestored); c.Status != corev1.ConditionTrue {
		t.Errorf("PodRestored is %+v", c)
	}
	w.eventually("the second pod is told", func() error {
		out := w.kubectl("exec", "second", "--", "cat", "/tmp/told")
		var boot, told string
		if n, err := fmt.Sscan(out, &boot, &told); n != 2 {
			return fmt.Errorf("%q: %w", out, err)
		}
		if told != "restore" {
			t.Fatalf("the second pod was told %q", told)
		}
		return nil
	})
}

// filesSaving is the script of a container that has the files of its pod saved, unless it begins with
// files that were. First it tries to have all of it saved, and keeps what it is told.
const filesSaving = `if [ ! -e /told ]; then
( exec 3<>/proc/gvisor/checkpoint; echo 1 >&3; head -n 1 <&3 ) > /told
exec 4<>/proc/gvisor/fscheckpoint; echo 1 >&4; head -n 1 <&4
fi
while [ ! -e /tmp/end ]; do usleep 10000; done`

// TestWorkloadSavesFiles has pods save their files, under policies of either scope: they are
// Completed, and the next pod of their kind has them. A pod whose files alone are to be saved cannot
// have all of it saved.
func TestWorkloadSavesFiles(t *testing.T) {
	t.Parallel()
	w := begin(t)
	selfSaver := func(p *corev1.Pod) {
		p.Annotations["dev.gvisor.internal.fscheckpoint.enable"] = "true"
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = images.Busybox, []string{"/bin/sh", "-c", filesSaving}
	}
	bold := func(p *corev1.Pod) { p.Annotations["dev.gvisor.internal.checkpoint.enable"] = "true" }
	for _, tc := range []struct {
		scope podsnapshotv1.SnapshotScope
		tries func(*corev1.Pod)
		told  string
		event string
	}{
		{podsnapshotv1.ScopeWholePod, func(*corev1.Pod) {}, "", "Successfully checkpointed"},
		{podsnapshotv1.ScopeRootfsOnly, bold, "error\n", "its snapshots are to be rootfs-only"},
	} {
		w.apply(strings.Replace(fmt.Sprintf(workloadPolicy, w.namespace), "storageConfigName:",
			fmt.Sprintf("snapshotScope: %s\n  storageConfigName:", tc.scope), 1))
		w.completes(w.pod("first-"+string(tc.scope), selfSaver, tc.tries))
		w.eventually("an event", func() error {
			return w.event("first-"+string(tc.scope),
				func(e *corev1.Event) bool { return strings.Contains(e.Message, tc.event) })
		})
		all := w.snapshots()
		if len(all) != 1 || all[0].Annotations[podsnapshotv1.AnnotationScope] != "rootfs-only" ||
			!meta.IsStatusConditionTrue(all[0].Status.Conditions, podsnapshotv1.ConditionReady) {
			t.Fatalf("PodSnapshots %+v", all)
		}
		second := w.run(w.pod("second-"+string(tc.scope), selfSaver))
		if c := condition(second.Pod, podsnapshotv1.ConditionPodRestored); c.Status != corev1.ConditionTrue {
			t.Errorf("PodRestored is %+v", c)
		}
		w.reads(second.Name, "/told", tc.told)
		w.discard(all[0].Name)
	}
}

// completes creates a pod and returns when it is Completed.
func (w *world) completes(p *corev1.Pod) {
	w.Helper()
	w.must(w.client.Create(w.ctx, p))
	w.eventually("the pod has saved itself", func() error {
		w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(p), p))
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			return nil
		case corev1.PodFailed:
			w.Fatalf("the pod has failed: %+v", p.Status.ContainerStatuses)
		}
		return fmt.Errorf("it is %s", p.Status.Phase)
	})
}
