package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// scripted is a ConfigMap with a script that holds itself and the pod's token open. The shell reads on in the script
// only after it has waited. The file of the script is longer than what a shell reads at once.
const scripted = `
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: %[1]s}
data:
  run.sh: |
    exec 3< /var/run/secrets/kubernetes.io/serviceaccount/token
    echo begun > /shared/state
    until [ -e /shared/wake ]; do sleep 0.1; done
    %[3]s
    echo %[2]s woken > /shared/state
    until [ -e /shared/restore ]; do sleep 0.1; done
    %[3]s
    cat <&3 > /shared/token
    echo %[2]s restored > /shared/state
    sleep 100000
`

// TestKubeletVolumes has a pod run a script from a ConfigMap that the kubelet writes again while the script runs. The
// kubelet has removed the script's directory by the time at which the pod falls asleep. The script goes on when the pod
// is woken, and when it is restored in a new pod, whose volumes have other directories and another token.
func TestKubeletVolumes(t *testing.T) {
	t.Parallel()
	w := begin(t)
	n := w.Node(0)
	w.configure("old")
	first := w.run(w.pod("web", on(n), fromConfig))
	before := w.life(first)
	w.eventually("the script runs", w.isAt("begun"))
	token := w.exec("web", "script", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	w.configure("new")
	w.writtenAnew(n, first)
	w.sleeps("web", "sleep")
	w.exec("web", "script", "touch", "/shared/wake")
	w.eventually("the script goes on after the wake", w.isAt("old woken"))

	s := w.checkpoint(first)
	w.remove("web")
	again := w.run(w.pod("web", on(n), fromConfig))
	w.restored(again, s.name, before)
	w.exec("web", "script", "touch", "/shared/restore")
	w.eventually("the script goes on after the restore", w.isAt("old restored"))
	if got := w.exec("web", "script", "cat", "/shared/token"); got != token {
		t.Error("the token that the script held is another one")
	}
	if got := w.exec("web", "script", "cat", "/config/run.sh"); !strings.Contains(got, "new woken") {
		t.Errorf("whoever opens the file now reads %q", got)
	}
	for _, c := range w.get("web").Status.ContainerStatuses {
		if c.RestartCount > 0 {
			t.Errorf("container %s was restarted: %+v", c.Name, c)
		}
	}
}

// configure writes the ConfigMap with the script.
func (w *world) configure(version string) {
	w.Helper()
	const line = "# what follows is read later"
	w.apply(fmt.Sprintf(scripted, w.namespace, version, strings.Repeat(line+"\n    ", 1000)))
}

// fromConfig gives a pod a container that runs the script.
func fromConfig(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{
		{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "config"},
		}}},
	}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: "script", Image: images.Busybox, Command: []string{"/bin/sh", "/config/run.sh"},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "shared", MountPath: "/shared"}, {Name: "config", MountPath: "/config"},
		},
	})
}

// isAt returns a condition: how far the script is.
func (w *world) isAt(want string) func() error {
	return func() error {
		if got := strings.TrimSpace(w.exec("web", "script", "cat", "/shared/state")); got != want {
			return fmt.Errorf("it is at %q", got)
		}
		return nil
	}
}

// writtenAnew waits until the kubelet has written the pod's ConfigMap again. It does that when it looks at the pod,
// as it does whenever the pod changes.
func (w *world) writtenAnew(n *bed.Node, p *ready) {
	w.Helper()
	link := n.Path(fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~configmap/config/..data", p.UID))
	was, err := os.Readlink(link)
	w.must(err)
	tries := 0
	w.eventually("the kubelet writes the volume", func() error {
		tries++
		w.annotate("web", "example.com/look", fmt.Sprint(tries))
		now, err := os.Readlink(link)
		if err == nil && now == was {
			err = fmt.Errorf("it is still %s", now)
		}
		return err
	})
}
