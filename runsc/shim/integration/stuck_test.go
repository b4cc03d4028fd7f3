package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"diapause.dev/test/bed"
)

// TestStuckSandbox stops a sandbox by SIGSTOP and ends containerd. Containerd asks for the statistics of every
// container all the time. A container that does not answer must not keep containerd from ending.
func TestStuckSandbox(t *testing.T) {
	pod := runPod(t, bed.PodSpec{Name: "stuck"})
	ctx := limited(t)
	p, err := client.Get(ctx, pod.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.SandboxPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() { syscall.Kill(p.SandboxPID, syscall.SIGCONT) }
	t.Cleanup(goOn) // before the pod is removed
	if err := bed.Until(ctx, func() error { return running("events", pod.Containers[0].ID) }); err != nil {
		t.Fatal(err)
	}
	if err := node.Containerd.Stop(ctx); err != nil {
		t.Error(err)
	}
	goOn()
	if err := node.Containerd.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
}

// running returns an error unless there is a process with both words on its command line.
func running(word, other string) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range files {
		args, _ := os.ReadFile(f) // the process may have ended
		if line := "\x00" + string(args); strings.Contains(line, "\x00"+word+"\x00") &&
			strings.Contains(line, "\x00"+other+"\x00") {
			return nil
		}
	}
	return fmt.Errorf("no process has the arguments %s and %s", word, other)
}
