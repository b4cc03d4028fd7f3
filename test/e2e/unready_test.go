package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/test/images"
)

// TestUnready moves a file away that a pod holds open on the node, while it sleeps. The pod cannot be woken: its
// readiness probes fail, and Services send it nothing. Its liveness probes succeed: no container restarts. Once the
// file is back, it goes on and is Ready.
func TestUnready(t *testing.T) {
	t.Parallel()
	w := begin(t)
	n, dir := w.Node(0), filepath.Join("/var/lib", w.namespace)
	p := w.run(w.pod("web", on(n), withProbes, logging(dir)))
	before := w.life(p)
	w.sleeps("web", "one")
	file := n.Path(filepath.Join(dir, "app.log"))
	w.must(os.Rename(file, file+".1"))
	if err := w.ask(p, "/state", new(struct{})); err == nil {
		t.Error("it has answered")
	}
	w.eventually("no container is ready", func() error { return w.areReady("web", false) })
	w.must(os.Rename(file+".1", file))
	w.whole(p, before)
	w.eventually("all containers are ready", func() error { return w.areReady("web", true) })
}

// logging gives a pod a container that holds a file in a directory of the node open, and has a readiness probe by exec.
func logging(dir string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		kind := corev1.HostPathDirectoryOrCreate
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "logs", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind},
		}})
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "log", Image: images.Busybox,
			Command:      []string{"sh", "-c", "exec 3>/srv/app.log; while :; do echo line >&3; sleep 1; done"},
			VolumeMounts: []corev1.VolumeMount{{Name: "logs", MountPath: "/srv"}},
			ReadinessProbe: everyFewSeconds(corev1.ProbeHandler{
				Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/srv/app.log"}},
			}),
		})
	}
}

// areReady returns an error unless all containers of a pod are ready, or none is. It fails the test if one has
// restarted.
func (w *world) areReady(pod string, ready bool) error {
	var wrong []string
	all := w.get(pod).Status.ContainerStatuses
	for i := range all {
		if all[i].RestartCount != 0 {
			w.Fatalf("container %s has restarted", all[i].Name)
		}
		if all[i].Ready != ready {
			wrong = append(wrong, fmt.Sprintf("%s: ready %v", all[i].Name, all[i].Ready))
		}
	}
	if len(all) == 0 {
		wrong = append(wrong, "there are none")
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, ", "))
	}
	return nil
}
