package install

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Options say what is installed, and where.
type Options struct {
	// Host is where the host's root directory is mounted: "/" on the host itself.
	Host string
	// Programs is the directory to copy the programs from. It is not a path of the host.
	Programs string
	// Dir is the directory of the host for everything that is installed, except DropIn.
	Dir string
	// Config is containerd's main configuration file. It is read and never written.
	Config string
	// DropIn is the file to add to containerd's configuration. Config must import it.
	DropIn string
	// Socket is containerd's socket.
	Socket string
	// Handlers are the names of the runtime handlers.
	Handlers []string
	// Runsc is the build of runsc to install: RunscFast, the default, or RunscStock.
	Runsc string
	// Flags are runsc's flags, by name without dashes.
	Flags map[string]string
	// EndAsleep installs another version of gVisor even if pods sleep that only the present one can wake.
	EndAsleep bool
	// Restart makes containerd read its configuration. It returns when the restart is under way or done. If it is nil,
	// somebody else restarts containerd.
	Restart func(context.Context) error
	// RestartTime bounds the wait for a restarted containerd; 0: a minute.
	RestartTime time.Duration
	// Logger logs each change.
	Logger *slog.Logger
}

// DefaultFlags are the flags that runsc needs to serve Diapause: how its sandboxes intercept system calls, and that
// the agent, not runsc, compares a snapshot with its pod, and that connections are saved, for pods that sleep.
func DefaultFlags() map[string]string {
	return map[string]string{
		"platform": "systrap", "restore-spec-validation": "ignore", "allow-connected-on-save": "true",
	}
}

// programs are the programs to install under Options.Dir/bin, see Options.source. They are in an order in which none is
// there before the programs that it starts.
var programs = []string{"gvisor-bin/checkpointgofer", runscProgram, shimProgram, "diapause"}

// The builds of runsc: gVisor's own, and that of package runsc/fast. Either is installed as runsc, gives the same
// version, and restores what the other has saved.
const (
	RunscStock = "stock"
	RunscFast  = "fast"
)

// source returns the program to copy to the path name.
func (o Options) source(name string) string {
	if name == runscProgram && o.Runsc != RunscStock {
		name = "runsc-fast"
	}
	return filepath.Join(o.Programs, name)
}

const (
	shimProgram  = "containerd-shim-diapause-v1"
	runscProgram = "runsc"
)

// handlerNames matches the names that containerd and the kubelet accept for a runtime handler.
var handlerNames = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (o Options) validate() error {
	for what, path := range map[string]string{
		"host": o.Host, "programs": o.Programs, "directory": o.Dir,
		"containerd's configuration": o.Config, "drop-in": o.DropIn, "containerd's socket": o.Socket,
	} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return fmt.Errorf("install: %s %q: want an absolute path without '.', '..' and doubled or trailing slashes", what,
				path)
		}
	}
	if o.Dir == "/" {
		return errors.New("install: directory: want one for Diapause alone, such as /opt/diapause")
	}
	if !slices.Contains([]string{"", RunscFast, RunscStock}, o.Runsc) {
		return fmt.Errorf("install: runsc %q: want %s or %s", o.Runsc, RunscFast, RunscStock)
	}
	if len(o.Handlers) == 0 {
		return errors.New("install: no runtime handler is named")
	}
	for _, h := range o.Handlers {
		if !handlerNames.MatchString(h) || h == "runc" {
			return fmt.Errorf("install: runtime handler %.80q: want a name of a-z, 0-9 and '-' that is not runc, as diapause", h)
		}
	}
	return nil
}

// host returns where a path of the host is mounted.
func (o Options) host(path ...string) string {
	return filepath.Join(o.Host, filepath.Join(path...))
}

// shim is the path of the shim on the host.
func (o Options) shim() string { return filepath.Join(o.Dir, "bin", shimProgram) }

// runscConfig is the path of runsc's configuration on the host.
func (o Options) runscConfig() string { return filepath.Join(o.Dir, "runsc.toml") }
