package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
)

// ending is the script of a container that ends when it is told to.
const ending = `while [ ! -e /end ]; do usleep 10000; done; exit 1`

// filling makes files of several kinds in a volume.
const filling = `cd /also; rm -rf side hard sub; set -e
echo -n beside > side; ln side hard; chmod 640 side; chown 12:34 side; mkdir sub; mkfifo sub/pipe
head -c 3000000 /dev/urandom > bulk; chmod 1755 .`

// TestRootfsVolumes freezes the files of a pod with emptyDir volumes: those that are in a file of the
// node come back, as they were, in all containers that mount them, whichever is first, and outlive one
// that is started again; those in memory, and those that an init container fills, begin anew. Such a pod
// can be frozen in its turn.
func TestRootfsVolumes(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(rootfsPolicy(w.namespace))
	first := w.run(w.pod("web", on(w.Node(0)), w.sharing()))
	w.write("web", "/mark", "kept")
	w.write("web", "/shared/mark", "shared")
	w.exec("web", "side", "sh", "-c", filling)
	w.write("web", "/memory/mark", "volatile")
	w.reads("web", "/early/init", "1")
	look := []string{"sh", "-c", "cd /also; stat -c '%n %a %u:%g %h %F' . side sub sub/pipe; md5sum bulk side hard mark"}
	want := w.exec("web", "side", look...)
	s := w.checkpoint(first)
	w.write("web", "/shared/mark", "later")
	w.remove("web")

	again := w.run(w.pod("web", on(w.Node(1)), w.sharing(), func(p *corev1.Pod) { slices.Reverse(p.Spec.Containers) }))
	if c := condition(again.Pod, podsnapshotv1.ConditionPodRestored); c.Status != corev1.ConditionTrue ||
		!strings.Contains(c.Message, s.name) {
		t.Errorf("Ready with PodRestored %+v, want True from %s", c, s.name)
	}
	if got := w.exec("web", "side", look...); got != want {
		t.Errorf("the volume has\n%s\nhad\n%s", got, want)
	}
	w.reads("web", "/mark", "kept")
	w.reads("web", "/shared/mark", "shared")
	w.reads("web", "/shared/side", "beside")
	w.reads("web", "/early/init", "1")
	if got := w.exec("web", "", "ls", "/memory"); got != "" {
		t.Errorf("the volume in memory has %q", got)
	}

	w.write("web", "/mark", "changed")
	w.write("web", "/shared/mark", "changed")
	w.exec("web", "", "touch", "/end")
	w.eventually("the container is started again", func() error {
		for _, c := range w.current("web").Status.ContainerStatuses {
			if c.Name == "app" && c.RestartCount == 1 && c.State.Running != nil {
				return nil
			}
		}
		return errNotYet
	})
	w.reads("web", "/mark", "kept")
	w.reads("web", "/shared/mark", "changed")
	if got := w.exec("web", "side", "cat", "/also/mark"); got != "changed" {
		t.Errorf("the other container reads %q", got)
	}

	w.checkpoint(again)
	w.remove("web")
	w.run(w.pod("web", on(w.Node(0)), w.sharing()))
	w.reads("web", "/mark", "kept")
	w.reads("web", "/shared/mark", "changed")
}

// sharing makes a pod of the containers and volumes that [TestRootfsVolumes] is about.
func (w *world) sharing() func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		volume := func(name string, medium corev1.StorageMedium) corev1.Volume {
			return corev1.Volume{
				Name:         name,
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}},
			}
		}
		p.Annotations["kubectl.kubernetes.io/default-container"] = "app"
		p.Spec.Volumes = []corev1.Volume{
			volume("shared", ""), volume("early", ""),
			volume("memory", corev1.StorageMediumMemory),
		}
		shell := func(name, script string, mounts ...corev1.VolumeMount) corev1.Container {
			return corev1.Container{
				Name: name, Image: images.Busybox, Command: []string{"/bin/sh", "-c", script},
				VolumeMounts: mounts,
			}
		}
		early := corev1.VolumeMount{Name: "early", MountPath: "/early"}
		p.Spec.InitContainers = []corev1.Container{
			shell("init", `echo -n $(( $(cat /early/init 2>/dev/null || echo 0) + 1 )) > /early/init`, early),
		}
		p.Spec.Containers = []corev1.Container{
			shell("app", ending, early, corev1.VolumeMount{Name: "shared", MountPath: "/shared"},
				corev1.VolumeMount{Name: "memory", MountPath: "/memory"}),
			shell("side", ending, corev1.VolumeMount{Name: "shared", MountPath: "/also"}),
		}
	}
}
