package command

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
)

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

// clientVersion is the module's version, or the commit it was built from.
func clientVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}
