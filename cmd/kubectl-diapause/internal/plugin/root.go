package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/errkind"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/cmd/internal/table"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
)

// name is how users call the plugin.
const name = "kubectl diapause"

// plugin holds what the commands share.
type plugin struct {
	out, err  io.Writer
	overrides clientcmd.ConfigOverrides
	file      string        // the kubeconfig; empty: as kubectl finds it
	timeout   time.Duration // of what agents and controller are waited for
	running   bool          // the command line was understood

	client    client.Client // set by run
	namespace string        // likewise
}

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

// run marks where a wrong command line ends, and connects to the cluster.
func (p *plugin) run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		p.running = true
		if p.timeout <= 0 {
			return usage.Error{Err: fmt.Errorf("--timeout %s: want a time greater than 0", p.timeout)}
		}
		if err := p.connect(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(c.Context(), p.timeout, fmt.Errorf("not done within %s", p.timeout))
		defer cancel()
		err := f(ctx, args)
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the cluster does not know %s: install Diapause first, or choose another --context",
				podsnapshotv1.Group)
		}
		return err
	}
}

// connect reads the kubeconfig. It asks the cluster for nothing.
func (p *plugin) connect() error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.file
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &p.overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if p.namespace, _, err = loader.Namespace(); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-diapause/" + version.Own()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), podsnapshotv1.AddToScheme(scheme)); err != nil {
		return err
	}
	if p.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("cluster %s: %w", config.Host, err)
	}
	return nil
}

// key returns the key of an object in the namespace.
func (p *plugin) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: p.namespace, Name: name}
}

// note tells what happens, on the standard error.
func (p *plugin) note(format string, args ...any) {
	fmt.Fprintln(p.err, table.Clean(fmt.Sprintf(format, args...)))
}

// poll is how often the plugin looks whether what it waits for is done.
const poll = 500 * time.Millisecond

// until calls done until it returns true, an error, or ctx ends.
func until(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}
