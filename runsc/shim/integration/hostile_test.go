package integration

import (
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/test/bed"
)

// TestHostileRootfsAnnotation: a pod's author names the node's root as the root file system of its containers.
// Containerd passes the annotations on, and runsc does not get them.
func TestHostileRootfsAnnotation(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	if err := os.WriteFile(mark, []byte("of the node"), 0o644); err != nil {
		t.Fatal(err)
	}
	pod := runPod(t, bed.PodSpec{Name: "bold", Annotations: map[string]string{
		"dev.gvisor.spec.rootfs.source": "/", "dev.gvisor.spec.rootfs.type": "bind",
		"dev.gvisor.spec.rootfs.overlay": "memory", "dev.gvisor.spec.cgroup-parent": "/",
		"dev.gvisor.tar.rootfs.upper": "/etc/shadow", "dev.gvisor.flag.network": "host",
		"dev.gvisor.spec.mount.*.type": "tmpfs", "dev.gvisor.not.known": "x",
	}})
	if out, code, err := node.Exec(limited(t), pod.Containers[0].ID, "/bin/cat", mark); err != nil || code == 0 {
		t.Errorf("the pod reads %q from a file of the node, %d, %v", out, code, err)
	}
}
