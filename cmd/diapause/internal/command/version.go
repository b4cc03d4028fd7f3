package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/version"
)

// askTime bounds the question to the agent if the command can do without the answer.
const askTime = 2 * time.Second

func (n *nodeCommands) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this tool and of the agent",
		Long:  "Show the versions of this tool and of the agent. If no agent answers, it says so, and does not fail.",
		Args:  cobra.NoArgs,
		RunE: n.run(func(ctx context.Context, _ []string) error {
			v := view.Version{Client: version.Own()}
			ctx, cancel := n.client.within(ctx, askTime)
			defer cancel()
			_ = n.client.ask(ctx, func(a localv1.AgentClient) error { // an agent that does not answer has no version
				s, err := a.Status(ctx, &localv1.StatusRequest{Probe: true})
				v.Agent, v.Node, v.Store, v.Runsc = s.GetVersion(), s.GetNode(), s.GetStore(), s.GetFacts().GetRunscVersion()
				return err
			})
			return n.console.print(v)
		}),
	}
}
