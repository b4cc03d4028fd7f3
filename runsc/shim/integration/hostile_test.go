package integration

import (
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/test/bed"
)

// TestHostileRootfsAnnotation: a pod's author names a file of the node, which runsc would open as root and hand to the
// sandbox as the image of its root file system. Containerd passes the annotations on, and runsc does not get them: the
// pod runs from its own image.
func TestHostileRootfsAnnotation(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := runPod(t, bed.PodSpec{Name: "bold", Annotations: map[string]string{
		"dev.gvisor.spec.rootfs.source": secret, "dev.gvisor.spec.rootfs.type": "erofs",
		"dev.gvisor.spec.rootfs.overlay": "memory",
	}})
	if _, code, err := node.Exec(limited(t), pod.Containers[0].ID, "/bin/true"); err != nil || code != 0 {
		t.Errorf("the pod does not run from its own image: %d, %v", code, err)
	}
}

// TestHostileFlagAnnotation: no flag of runsc, and nothing that gVisor may know some day, is the pod author's to set.
func TestHostileFlagAnnotation(t *testing.T) {
	runPod(t, bed.PodSpec{Name: "bold", Annotations: map[string]string{
		"dev.gvisor.flag.network": "host", "dev.gvisor.bundle.none": "wrong", "dev.gvisor.spec.mount.*.type": "tmpfs",
		"dev.gvisor.spec.cgroup-parent": "/nowhere", "dev.gvisor.not.known": "x",
	}})
}
