package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// drainTime is how long a container that has ended must write nothing until its output counts as complete.
const drainTime = 50 * time.Millisecond

// relay copies what a restored container writes to gVisor's shim. That shim waits for the end of the output before it
// deletes the container. But a restored sentry keeps the pipe of a standard stream open as long as it lives, even if
// no process has that stream any more. So the relay ends the output when the container ends.
type relay struct {
	in, out *os.File
}

// relays puts relays between a command of runsc and the pipes that are its standard output and error. The command
// gets the files in given instead. The caller must close these once the command runs.
func relays(cmd *exec.Cmd) (all []*relay, given []*os.File, err error) {
	for _, stream := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		f, ok := (*stream).(*os.File)
		if !ok || !isPipe(f) {
			continue
		}
		r, w, err := newRelay(f)
		if err != nil {
			closeAll(given)
			for _, r := range all {
				r.in.Close()
				r.out.Close()
			}
			return nil, nil, err
		}
		*stream, all, given = w, append(all, r), append(given, w)
	}
	return all, given, nil
}

func isPipe(f *os.File) bool {
	s, err := f.Stat()
	return err == nil && s.Mode()&os.ModeNamedPipe != 0
}

// newRelay returns a relay to a file, and the file to write to.
func newRelay(to *os.File) (*relay, *os.File, error) {
	fd, err := unix.FcntlInt(to.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("relay of %s: %w", to.Name(), err)
	}
	out := os.NewFile(uintptr(fd), to.Name())
	in, w, err := os.Pipe()
	if err != nil {
		out.Close()
		return nil, nil, fmt.Errorf("relay of %s: %w", to.Name(), err)
	}
	return &relay{in: in, out: out}, w, nil
}

// run copies everything until nothing can write any more, or until the container has ended and everything is read.
func (r *relay) run() {
	defer r.out.Close()
	defer r.in.Close()
	_, err := io.Copy(r.out, r.in)
	for errors.Is(err, os.ErrDeadlineExceeded) {
		var n int64
		if r.in.SetReadDeadline(time.Now().Add(drainTime)) != nil {
			return
		}
		if n, err = io.Copy(r.out, r.in); n == 0 {
			return
		}
	}
}

// end makes the relay end once everything is read.
func (r *relay) end() {
	_ = r.in.SetReadDeadline(time.Unix(1, 0)) // fails only if the relay has ended
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
