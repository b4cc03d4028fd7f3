package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Args are the arguments of the sidecar that matter. runsc passes many flags of its own beside them.
type Args struct {
	SockFD     int // the socket to the sentry
	OptionsFD  int // OptionsFile, open
	DebugLogFD int // where to log; -1: nowhere

	// What runsc wants the sentry to be allowed: for a sandbox's image, and for an image of root file systems.
	Writes, Reads             bool
	RootfsWrites, RootfsReads bool

	// Alone means that this process does nothing else, and may give up its rights.
	Alone bool
}

// ParseArgs finds the sidecar's arguments in argv (runsc/sandbox/sandbox.go,
// maybeStartCheckpointGoferAndGetSocket) and ignores all others.
func ParseArgs(argv []string) (Args, error) {
	a := Args{SockFD: -1, OptionsFD: -1, DebugLogFD: -1}
	fds := map[string]*int{"sock-fd": &a.SockFD, "gcs-opts-fd": &a.OptionsFD, "debug-log-fd": &a.DebugLogFD}
	for _, arg := range argv {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if allow := a.permission(name); allow != nil {
			*allow = true
		}
		if fd, ok := fds[name]; ok {
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return a, fmt.Errorf("argument %q: not a file descriptor", arg)
			}
			*fd = n
		}
	}
	if a.SockFD < 0 || a.OptionsFD < 0 {
		return a, errors.New("started without -sock-fd and -gcs-opts-fd: runsc starts this program, not a person")
	}
	return a, nil
}

// permission returns the permission that an argument with that name grants, or nil.
func (a *Args) permission(name string) *bool {
	switch name {
	case "allow-checkpoint-writes":
		return &a.Writes
	case "allow-checkpoint-reads":
		return &a.Reads
	case "allow-fscheckpoint-writes":
		return &a.RootfsWrites
	case "allow-fscheckpoint-reads":
		return &a.RootfsReads
	}
	return nil
}

// Log returns a logger that writes where runsc wants the sidecar's log.
func (a Args) Log() *slog.Logger {
	var w io.Writer = io.Discard
	if a.DebugLogFD >= 0 {
		w = os.NewFile(uintptr(a.DebugLogFD), "debug log")
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// Run runs the sidecar until its work is done.
func Run(a Args, log *slog.Logger) error {
	f := os.NewFile(uintptr(a.OptionsFD), OptionsFile)
	opts, err := ReadOptions(f)
	if err == nil && opts.Direction.Restores() {
		err = hold(int(f.Fd()))
	}
	f.Close()
	if err != nil {
		return err
	}
	log = log.With("request", opts.Request)
	switch {
	case opts.Direction == Checkpoint && a.Writes, opts.Direction == RootfsCheckpoint && a.RootfsWrites:
		return save(opts, a, log)
	case opts.Direction == Workload && a.Writes, opts.Direction == RootfsWorkload && a.RootfsWrites:
		return saveLater(opts, a, log)
	case opts.Direction == Restore && a.Reads, opts.Direction == RootfsRestore && a.RootfsReads:
		return relay(opts, a.SockFD, log)
	}
	return fmt.Errorf("request %s is for a %s, runsc started the sidecar for something else", opts.Request, opts.Direction)
}

// welcomeTime bounds how long the agent may take to welcome a sidecar.
const welcomeTime = 10 * time.Second

// poll waits until a socket has something to read, or its other end is gone. A negative limit means no limit.
func poll(sock int, limit time.Duration) (events int16, err error) {
	fds := []unix.PollFd{{Fd: int32(sock), Events: unix.POLLIN}}
	milliseconds := -1
	if limit >= 0 {
		milliseconds = int(limit.Milliseconds())
	}
	for {
		_, err := unix.Poll(fds, milliseconds)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the sentry: %w", err)
		}
		return fds[0].Revents, nil
	}
}

// hello introduces the sidecar and waits for the agent's welcome.
func hello(c *Conn, opts Options) error {
	b, err := json.Marshal(opts)
	if err != nil {
		return err
	}
	if err := c.Unix().SetReadDeadline(time.Now().Add(welcomeTime)); err != nil {
		return err
	}
	if err := c.Send(&Message{Kind: KindHello, Text: string(b)}, -1); err != nil {
		return fmt.Errorf("hello to the agent: %w", err)
	}
	var m Message
	f, err := c.Receive(&m)
	if err != nil {
		return fmt.Errorf("wait for the agent's welcome: %w", err)
	}
	f.Drop()
	if m.Kind != KindWelcome {
		return fmt.Errorf("%w: kind %d instead of a welcome", errPacket, m.Kind)
	}
	if err := m.Err(); err != nil {
		return &RefusedError{Request: opts.Request, Reason: err.Error()}
	}
	return c.Unix().SetReadDeadline(time.Time{})
}

// RefusedError means that the agent refuses the request.
type RefusedError struct{ Request, Reason string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the agent refuses request %s: %s", e.Request, e.Reason)
}

// ParseHello returns the options that a Hello carries.
func ParseHello(m *Message) (Options, error) {
	if m.Kind != KindHello {
		return Options{}, fmt.Errorf("%w: kind %d instead of a hello", errPacket, m.Kind)
	}
	return parseOptions([]byte(m.Text))
}

// dup duplicates a file descriptor. The duplicate is closed on exec.
func dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("duplicate file descriptor: %w", err)
	}
	return n, nil
}
