package fidelity

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the children of its checks.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildMode {
		os.Exit(Child(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestSuite lets all checks work for a while on a machine that loses nothing.
func TestSuite(t *testing.T) {
	tmpfs, err := os.MkdirTemp("/dev/shm", "diapause-fidelity-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmpfs)
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), Tmpfs: tmpfs})
	if err != nil {
		t.Fatal(err)
	}
	const enough = 3
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !all(s, enough); {
		time.Sleep(50 * time.Millisecond)
	}
	reports := s.Report()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if len(reports) < 17 {
		t.Errorf("only %d checks", len(reports))
	}
	for _, r := range reports {
		if !r.OK || r.Progress < enough {
			t.Errorf("%+v", r)
		}
	}
}

func all(s *Suite, progress int64) bool {
	for _, r := range s.Report() {
		if r.Progress < progress {
			return false
		}
	}
	return true
}

// TestChildThatEnds wants a lost process to be a failure.
func TestChildThatEnds(t *testing.T) {
	s := &Suite{ctx: t.Context(), stop: func() {}}
	r := s.record("lost")
	if err := s.child(r, nil, "exit", "3"); err != nil {
		t.Fatal(err)
	}
	s.wg.Wait()
	if v := r.report(); v.OK || !strings.Contains(v.Detail, "exit status 3") {
		t.Errorf("%+v", v)
	}
}

func TestChildExits(t *testing.T) {
	cmd, err := command(t.Context(), "exit", "42")
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 42 {
		t.Errorf("got %v, want exit status 42", err)
	}
}

func TestRecordKeepsTheFirstFailure(t *testing.T) {
	var r record
	r.step()
	r.fail(nil)
	if v := r.report(); !v.OK || v.Progress != 1 {
		t.Errorf("%+v", v)
	}
	r.fail(errors.New("one"))
	r.step()
	r.fail(errors.New("two"))
	if v := r.report(); v.OK || v.Detail != "after 1: one" || v.Progress != 2 {
		t.Errorf("%+v", v)
	}
}
