package failpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"diapause.dev/storage/failpoint"
)

// TestMain lets the test binary die at a step that its environment names.
func TestMain(m *testing.M) {
	if os.Getenv(failpoint.Variable) != "" {
		failpoint.PackSealed.Hit() // not armed yet
		failpoint.Arm()
		for range 3 {
			failpoint.PackSealed.Hit()
		}
		os.Exit(7)
	}
	os.Exit(m.Run())
}

func TestHit(t *testing.T) {
	failpoint.PackSealed.Hit() // not armed
	for value, killed := range map[string]bool{
		"pack sealed": true, "pack sealed#3": true, "pack sealed#4": false, "pack created": false, "pack sealed#x": true,
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), failpoint.Variable+"="+value)
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) {
			t.Fatalf("%q: %v", value, err)
		}
		status := exit.Sys().(syscall.WaitStatus)
		if got := status.Signaled() && status.Signal() == syscall.SIGKILL; got != killed || !killed && exit.ExitCode() != 7 {
			t.Errorf("%q: %v", value, exit)
		}
	}
}

func TestPointsAreDistinct(t *testing.T) {
	seen := map[failpoint.Point]bool{}
	for _, p := range failpoint.Points {
		if seen[p] {
			t.Errorf("%q twice", p)
		}
		seen[p] = true
	}
}
