package integration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"diapause.dev/test/bed"
)

// TestForgottenBeforeItServes has containerd end after it has asked for a shim and before the shim serves. The next
// containerd removes the bundle, and reads no log: the shim ends by itself.
func TestForgottenBeforeItServes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bundle")
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600),
		syscall.Mkfifo(filepath.Join(dir, "log"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limited(t), "containerd-shim-diapause-v1", "-namespace", "k8s.io",
		"-address", bed.ContainerdSocket, "-id", "forgotten", "start")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TTRPC_ADDRESS="+bed.ContainerdSocket+".ttrpc")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("ttrpc")) {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "shim.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	err = bed.Until(limited(t), func() error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return errors.New("the shim is still there")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
