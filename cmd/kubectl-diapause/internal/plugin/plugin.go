package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/cmd/internal/table"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
)

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
