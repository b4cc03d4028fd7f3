package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fakeKubelet starts a process that is called kubelet, and returns what ends it.
func (n *node) fakeKubelet() (stop func()) {
	n.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		n.Fatal(err)
	}
	b, err := os.ReadFile(busybox)
	if err != nil {
		n.Fatal(err)
	}
	path := filepath.Join(n.TempDir(), "kubelet")
	if err := os.WriteFile(path, b, 0o700); err != nil {
		n.Fatal(err)
	}
	cmd := exec.Command(path, "infinity")
	cmd.Args[0] = "sleep"
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.eventually("the process is called kubelet", func() error {
		_, err := exec.Command("pgrep", "-x", "kubelet").Output()
		return err
	})
	return func() {
		cmd.Process.Kill()
		if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
			n.Log(err)
		}
	}
}
