package command

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
)

// Version is set at link time; empty: the module's version.
var Version string

func (t *tool) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this tool and of the agent",
		Args:  cobra.NoArgs,
		RunE: t.run(func(ctx context.Context, _ []string) error {
			v := view.Version{Client: clientVersion()}
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_ = t.ask(ctx, func(a localv1.AgentClient) error { // an agent that does not answer has no version
				s, err := a.Status(ctx, &localv1.StatusRequest{})
				v.Agent, v.Node, v.Store, v.Runsc = s.GetVersion(), s.GetNode(), s.GetStore(), s.GetFacts().GetRunscVersion()
				return err
			})
			return t.print(v)
		}),
	}
}

func clientVersion() string {
	if Version != "" {
		return Version
	}
	if i, ok := debug.ReadBuildInfo(); ok && i.Main.Version != "" {
		return i.Main.Version
	}
	return "unknown"
}
