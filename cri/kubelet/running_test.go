package kubelet

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProcessNamed(t *testing.T) {
	proc := t.TempDir()
	for pid, comm := range map[string]string{"1": "init\n", "42": "kubelet\n", "self": "kubelet\n", "43": "kubelet-x\n"} {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "comm"), []byte(comm), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if pid, ok, err := processNamed(proc, "kubelet"); pid != 42 || !ok || err != nil {
		t.Errorf("kubelet: %d, %v, %v", pid, ok, err)
	}
	if _, ok, err := processNamed(proc, "crio"); ok || err != nil {
		t.Errorf("crio: %v, %v", ok, err)
	}
	if _, _, err := processNamed(filepath.Join(proc, "none"), "kubelet"); err == nil {
		t.Error("no error without a proc file system")
	}
}
