package cri

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDialNobody(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	address := filepath.Join(t.TempDir(), "containerd.sock")
	if _, err := Dial(ctx, Options{Address: address}); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("error %v, want one that names %s", err, address)
	}
}

// TestKillSandbox kills a process with the id on its command line, and no other.
func TestKillSandbox(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & wait", "0123abcd")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 100 { // for a moment a new program has no command line yet
		if is, err := isSandbox(cmd.Process.Pid, "0123abcd"); is || err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := killSandbox(cmd.Process.Pid, "other"); err == nil ||
		!strings.Contains(err.Error(), "is not the sandbox other") {
		t.Errorf("error %v", err)
	}
	if err := killSandbox(cmd.Process.Pid, "0123abcd"); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("process ended with %v", err)
	}
	if err := killSandbox(cmd.Process.Pid, "0123abcd"); err != nil {
		t.Errorf("process that is gone: %v", err)
	}
}
