package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"diapause.dev/agent/errkind"
	"diapause.dev/cmd/internal/table"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
)

// name is how users call the plugin.
const name = "kubectl diapause"

// Run runs the plugin with the arguments of its command line, and returns the exit code.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	p := &plugin{out: out, err: errOut}
	root := p.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !p.running {
		err = usage.Error{Err: fmt.Errorf("%w\nsee %q", err, name+" --help")}
	}
	if err != nil {
		for line := range strings.SplitSeq(table.Clean(err.Error()), "\n") {
			fmt.Fprintln(errOut, name+": "+line)
		}
	}
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return errkind.ExitOK
	case errors.As(err, new(usage.Error)):
		return errkind.ExitUsage
	case apierrors.IsNotFound(err):
		return errkind.ExitNotFound
	case errors.Is(err, context.Canceled):
		return errkind.ExitInterrupted
	}
	return errkind.ExitFailure
}

func (p *plugin) root() *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-diapause",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Checkpoint, restore and sleep: pods in gVisor",
		Long: `Checkpoint pods that run in gVisor, look at their snapshots, and put pods to sleep.

The commands need the rights of the kubeconfig alone. On a node, "diapause" asks the node's agent.

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 the named object does not exist, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(p.out)
	root.SetErr(p.err)
	f := root.PersistentFlags()
	f.StringVar(&p.file, "kubeconfig", "", "`path` of the kubeconfig (default: as for kubectl)")
	f.StringVar(&p.overrides.CurrentContext, "context", "", "the kubeconfig's `context` to use")
	f.StringVarP(&p.overrides.Context.Namespace, "namespace", "n", "", "the `namespace` (default: that of the context)")
	f.DurationVar(&p.timeout, "timeout", 10*time.Minute, "give up after this `time`; what was asked for may still be done")
	root.AddCommand(p.checkpoint(), p.list(), p.remove(), p.pods(), p.sleep(), p.wake(), p.version())
	return root
}

func (p *plugin) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this plugin", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p.running = true
			_, err := fmt.Fprintln(p.out, version.Own())
			return err
		},
	}
}
