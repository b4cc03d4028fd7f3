package runsc_test

import (
	"os/exec"
	"syscall"
	"testing"

	"diapause.dev/runsc"
)

// TestKillOrphans: sandboxes and gofers of the container end, and nothing else that names it.
func TestKillOrphans(t *testing.T) {
	const container = "3f1c0d7e-orphan"
	for _, tc := range []struct {
		name string
		args []string
		ends bool
	}{
		{"a sandbox", []string{"runsc-sandbox", "-c", "read x", "boot", container}, true},
		{"a gofer", []string{"runsc-gofer", "-c", "read x", "gofer", container}, true},
		{"another container's", []string{"runsc-sandbox", "-c", "read x", "boot", container + "2"}, false},
		{"one that names it on the way", []string{"runsc-gofer", "-c", "read x", container, "other"}, false},
		{"another program", []string{"containerd-shim", "-c", "read x", "-id", container}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := &exec.Cmd{Path: "/bin/sh", Args: tc.args}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := runsc.KillOrphans(container); err != nil {
				t.Error(err)
			}
			in.Close()
			_ = cmd.Wait()
			killed := cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled()
			if killed != tc.ends {
				t.Errorf("killed: %v, want %v", killed, tc.ends)
			}
		})
	}
}
