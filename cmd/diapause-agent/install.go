package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"diapause.dev/agent/install"
	"diapause.dev/cmd/internal/usage"
)

func installCommand() *cobra.Command {
	var s installation
	cmd := s.command("install", "Put the shim, runsc and the runtime handlers on this node")
	cmd.Long = "install copies the shim, runsc and its sidecar to a directory of the host and adds a drop-in to\n" +
		"containerd's configuration. You can run it again at any time: it changes only what differs, and restarts\n" +
		"containerd only if containerd runs with another configuration. It refuses to bring another version of gVisor\n" +
		"while pods sleep, says how many, and changes nothing: see --end-sleeping-pods."
	f := cmd.Flags()
	f.StringVar(&s.options.Programs, "from", executableDir(), "directory of the programs to install")
	f.StringVar(&s.options.Runsc, "runsc", install.RunscFast,
		"which build of runsc to install: "+install.RunscFast+", with repairs of gVisor and shorter pauses, or "+
			install.RunscStock+", gVisor's own")
	f.BoolVar(&s.options.EndAsleep, "end-sleeping-pods", false,
		"install another version of gVisor even if pods sleep that only the present one can wake; they end at their next "+
			"wake")
	f.StringToStringVar(&s.flags, "runsc-flag", nil,
		"an additional runsc flag, or another value for a default one, as name=value")
	cmd.RunE = s.run(func(cmd *cobra.Command, o install.Options) error { return install.Install(cmd.Context(), o) })
	return cmd
}

func uninstallCommand() *cobra.Command {
	var (
		s           installation
		force, stay bool
	)
	cmd := s.command("uninstall", "Remove what install has put on this node")
	cmd.Long = "uninstall removes the runtime handlers from containerd and the programs from the host. It keeps\n" +
		"snapshots and the agent's state. It refuses while pods run under the runtime."
	f := cmd.Flags()
	f.BoolVar(&force, "force", false, "remove the handlers even if pods run under the runtime; the programs then stay")
	f.BoolVar(&stay, "stay", false, "when everything is removed, wait for a signal to exit, as a DaemonSet's pod must")
	s.options.Programs = "/"
	cmd.RunE = s.run(func(cmd *cobra.Command, o install.Options) error {
		err := install.Uninstall(cmd.Context(), o, force)
		if err == nil && stay {
			<-cmd.Context().Done()
		}
		return err
	})
	return cmd
}

// installation holds the values of both commands' flags.
type installation struct {
	options install.Options
	flags   map[string]string
	restart string
	logs    logging
}

func (s *installation) command(use, short string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	o, f := &s.options, cmd.Flags()
	f.StringVar(&o.Host, "host", "/", "where the host's root directory is mounted; all paths except --from are the host's")
	f.StringVar(&o.Dir, "dir", "/opt/diapause", "directory of the host for the programs and runsc's configuration")
	f.StringVar(&o.Config, "containerd-config", "/etc/containerd/config.toml",
		"containerd's configuration file, which must import the drop-in")
	f.StringVar(&o.DropIn, "drop-in", "/etc/containerd/conf.d/diapause.toml", "file to add to containerd's configuration")
	f.StringVar(&o.Socket, "containerd", "/run/containerd/containerd.sock", "containerd's socket")
	f.StringSliceVar(&o.Handlers, "handlers", []string{"diapause", "gvisor"}, "names of the runtime handlers")
	f.StringVar(&s.restart, "restart", "systemctl restart containerd",
		"how to restart containerd: a command of the host; "+
			install.RestartSignal+" (sends SIGTERM; its supervisor starts it again); or "+install.RestartNone)
	s.logs.register(f, "info")
	return cmd
}

// run completes the options and calls f with them.
func (s *installation) run(f func(*cobra.Command, install.Options) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) (err error) {
		o := s.options
		if o.Logger, err = s.logs.logger(); err != nil {
			return err
		}
		if o.Restart, err = o.Restarter(s.restart); err != nil {
			return usage.Error{Err: err}
		}
		o.Flags = install.DefaultFlags()
		for name, value := range s.flags {
			o.Flags[name] = value
		}
		return f(cmd, o)
	}
}

// executableDir returns the directory of this program, or "" if it cannot find out.
func executableDir() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}
