package fidelity

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"diapause.dev/test/workload/internal/memory"
)

// spawn starts short-lived children and wants their exit codes.
func (s *Suite) spawn() error {
	code := 0
	s.every(s.record("spawn"), 300*time.Millisecond, func() error {
		code = 1 + code%100
		cmd, err := command(s.ctx, "exit", strconv.Itoa(code))
		if err != nil {
			return err
		}
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != code {
			return fmt.Errorf("child to exit with %d: %v", code, err)
		}
		return nil
	})
	return nil
}

// heap writes memory and checks it all the time.
func (s *Suite) heap() error {
	m, err := memory.New(16<<20, memory.Content{Seed: 11, Random: memory.Half})
	if err != nil {
		return err
	}
	r := s.record("memory")
	s.run(r, func() error { m.Dirty(s.ctx, 20); return nil })
	s.every(r, 100*time.Millisecond, func() error {
		if v := m.Verify(); !v.OK {
			return fmt.Errorf("%d of %d pages: %v", v.Bad, v.Pages, v.Problems)
		}
		return nil
	})
	return nil
}

// belongings is what a process has got from whoever started it.
type belongings struct {
	environ, cmdline []byte
	dir              string
	uid, parent      int
}

func look() (b belongings, err error) {
	if b.environ, err = os.ReadFile("/proc/self/environ"); err != nil {
		return b, err
	}
	if b.cmdline, err = os.ReadFile("/proc/self/cmdline"); err != nil {
		return b, err
	}
	b.uid, b.parent = os.Getuid(), os.Getppid()
	b.dir, err = os.Getwd()
	return b, err
}

// differs says what is not as it was.
func (b belongings) differs(now belongings) error {
	switch {
	case !bytes.Equal(b.environ, now.environ):
		return fmt.Errorf("environment is %q, was %q", now.environ, b.environ)
	case !bytes.Equal(b.cmdline, now.cmdline):
		return fmt.Errorf("command line is %q, was %q", now.cmdline, b.cmdline)
	case b.dir != now.dir:
		return fmt.Errorf("working directory is %s, was %s", now.dir, b.dir)
	case b.uid != now.uid || b.parent != now.parent:
		return fmt.Errorf("user %d and parent %d, were %d and %d", now.uid, now.parent, b.uid, b.parent)
	}
	return nil
}

func (s *Suite) environment() error {
	was, err := look()
	if err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	s.every(s.record("environment"), 50*time.Millisecond, func() error {
		now, err := look()
		return errors.Join(err, was.differs(now))
	})
	return nil
}
