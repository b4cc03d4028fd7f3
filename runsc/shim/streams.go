package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// streams are the standard output and error of a container that sleeps: the pipes from which containerd reads its log.
// While they are open here, containerd does not see the end of them. They implement go-runc's IO, and so become the
// output of the container when it is restored; a relay is put between the two then, see relay.go.
type streams struct{ out, err *os.File }

// openStreams opens pipes by their names. A name may be empty. It opens both ends of each pipe, so that it need not
// wait for a containerd that is being restarted.
func openStreams(stdout, stderr string) (*streams, error) {
	out, err := openPipe(stdout)
	if err != nil {
		return nil, err
	}
	errors, err := openPipe(stderr)
	if err != nil {
		out.Close()
		return nil, err
	}
	return &streams{out, errors}, nil
}

func openPipe(name string) (*os.File, error) {
	if name == "" {
		name = os.DevNull
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("standard stream: %w", err)
	}
	if name != os.DevNull && !isPipe(f) {
		return nil, errors.Join(fmt.Errorf("standard stream %s is no pipe", name), f.Close())
	}
	return f, nil
}

// Set makes the streams those of a command.
func (s *streams) Set(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = s.out, s.err }

// Stdin returns nil: a container that sleeps has none.
func (s *streams) Stdin() io.WriteCloser { return nil }

// Stdout returns nil: nobody else reads it.
func (s *streams) Stdout() io.ReadCloser { return nil }

// Stderr returns nil: nobody else reads it.
func (s *streams) Stderr() io.ReadCloser { return nil }

// Close closes the streams. What was written into them stays until it is read.
func (s *streams) Close() error { return errors.Join(s.out.Close(), s.err.Close()) }

// again makes a container's next start one that restores it.
func (t *terminals) again(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.all[id]; x != nil {
		x.restored, x.relays = true, nil
	}
}
