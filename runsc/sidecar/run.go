package sidecar

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
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
