package specutils

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child starts a child that runs a command line, and returns its ID. The test waits for it.
func child(t *testing.T, line string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// status waits for the end of a child and returns its exit status.
func status(t *testing.T, pid int) int {
	t.Helper()
	var ws unix.WaitStatus
	if got, err := unix.Wait4(pid, &ws, 0, nil); got != pid || err != nil {
		t.Fatalf("wait for child %d: %d, %v; has its end been taken?", pid, got, err)
	}
	return ws.ExitStatus()
}

// untilEnded returns when a child has ended, and leaves its end.
func untilEnded(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

// TestReadyThenEnded has a child report that it is ready, and end, between a look at its report and one at the child.
func TestReadyThenEnded(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report")
	pid := child(t, "touch "+report+"; exit 7")
	looks := 0
	ready := func() (bool, error) {
		if looks++; looks == 1 {
			untilEnded(t, pid)
			return false, nil
		}
		_, err := os.Stat(report)
		return err == nil, err
	}
	if err := WaitForReady(pid, time.Minute, ready); err != nil {
		t.Error(err)
	}
	if got := status(t, pid); got != 7 {
		t.Errorf("the child ended with %d", got)
	}
}

func TestEndedAndNeverReady(t *testing.T) {
	pid := child(t, "exit 8")
	never := func() (bool, error) { return false, nil }
	if err := WaitForReady(pid, time.Minute, never); err == nil {
		t.Error("a child that has ended is taken for ready")
	}
	if got := status(t, pid); got != 8 {
		t.Errorf("the child ended with %d", got)
	}
}

func TestReadyAfterAWhile(t *testing.T) {
	pid := child(t, "exec sleep 600")
	looks := 0
	ready := func() (bool, error) { looks++; return looks == 3, nil }
	if err := WaitForReady(pid, time.Minute, ready); err != nil || looks != 3 {
		t.Errorf("after %d looks: %v", looks, err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	status(t, pid)
}
