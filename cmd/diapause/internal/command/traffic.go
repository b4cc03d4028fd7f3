package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/runsc/netns"
	"diapause.dev/runsc/traffic"
)

func (p *podCommands) traffic() *cobra.Command {
	var during time.Duration
	c := &cobra.Command{
		Use:   "traffic [--for 30s] POD",
		Short: "Show which packets come for a pod: what keeps it awake",
		Long: `Show which packets come for a pod: from whom, by which protocol and for which port. POD is as for
"diapause sleep". Ctrl-C ends it early. It must run on the node itself, not in the agent's container.

The kubelet's probes come from an address of the node. Neighbors ask for addresses by ARP or ICMPv6,
which keeps no pod awake.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completePods,
		RunE: p.run(func(ctx context.Context, args []string) error {
			if during < time.Second || during > time.Hour {
				return usage.Error{Err: fmt.Errorf("--for %s: want a time from 1s to 1h", during)}
			}
			return p.runTraffic(ctx, args[0], during)
		}),
	}
	c.Flags().DurationVar(&during, "for", 30*time.Second, "`time` for which packets are counted")
	return c
}

func (p *podCommands) runTraffic(ctx context.Context, pod string, during time.Duration) error {
	sandbox, err := p.sandboxOf(ctx, pod)
	if err != nil {
		return failed("traffic of", pod, err)
	}
	counting, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	began := time.Now()
	all, err := traffic.Watch(counting, int(sandbox.GetProcess()))
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w\nrun this command on the node itself, as root", err)
	case errors.Is(err, netns.ErrShared):
		err = errors.New("it has the node's network (hostNetwork), and never sleeps")
	}
	if err != nil {
		return fmt.Errorf("traffic of %s: %w", pod, err)
	}
	return p.console.print(view.NewTraffic(sandbox.GetNamespace()+"/"+sandbox.GetPod(), time.Since(began), all))
}

// sandboxOf returns the running sandbox of a pod of this node.
func (p *podCommands) sandboxOf(ctx context.Context, pod string) (*localv1.SandboxUse, error) {
	ctx, cancel := p.client.query(ctx)
	defer cancel()
	var all []*localv1.SandboxUse
	err := p.client.ask(ctx, func(a localv1.AgentClient) error {
		r, err := a.Top(ctx, &localv1.TopRequest{})
		all = r.GetSandboxes()
		return err
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s *localv1.SandboxUse) bool {
		return pod != s.GetPod() && pod != s.GetNamespace()+"/"+s.GetPod() && pod != s.GetId()
	})
	switch {
	case len(all) == 0:
		return nil, status.Error(codes.NotFound, "no pod of this node that runs in gVisor has this name or id")
	case len(all) > 1:
		return nil, status.Error(codes.FailedPrecondition,
			"several pods of this node have this name: write namespace/name")
	case all[0].GetAsleep() != nil:
		return nil, status.Error(codes.FailedPrecondition, "it sleeps: no packet keeps it awake")
	case all[0].GetProcess() == 0:
		return nil, status.Error(codes.FailedPrecondition, "its sandbox does not run")
	}
	return all[0], nil
}
