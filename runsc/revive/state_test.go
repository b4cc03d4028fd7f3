package revive

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSandboxBegun(t *testing.T) {
	s := StateOf(t.TempDir(), "abc")
	if s.Begun() {
		t.Error("begun without a lock file")
	}
	f, err := os.Create(string(s) + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s.Begun() {
		t.Error("begun, and nobody has the lock")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if !s.Begun() {
		t.Error("not begun, and the lock is held")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("who looks keeps the lock: %v", err)
	}
}

func TestSandboxWaits(t *testing.T) {
	s := StateOf(t.TempDir(), "abc")
	if s.Waits() {
		t.Error("it waits without a state")
	}
	for state, want := range map[string]bool{
		`{"id":"abc","status":"created"}`: false,
		`{"id":"abc","status":"running"}`: true,
		`{"id":"abc","status":"runn`:      false, // being written
		``:                                false,
	} {
		if err := os.WriteFile(string(s)+".state", []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.Waits(); got != want {
			t.Errorf("state %q: %t, want %t", state, got, want)
		}
	}
}

func TestAwait(t *testing.T) {
	n := 0
	if !Await(func() bool { n++; return n == 3 }, nil) {
		t.Error("the state was reached")
	}
	over := make(chan struct{})
	close(over)
	if Await(func() bool { return false }, over) {
		t.Error("the state was not reached")
	}
}
