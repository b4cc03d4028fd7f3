package command

import (
	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
)

// snapshotCommands are the commands about snapshots.
type snapshotCommands struct {
	client  *client
	console *console
	run     runner
}

// completeSnapshots offers the names of snapshots to the shell. If the agent is away, it offers nothing.
func (s *snapshotCommands) completeSnapshots(c *cobra.Command, _ []string,
	_ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := s.client.within(c.Context(), askTime)
	defer cancel()
	var names []cobra.Completion
	_ = s.client.ask(ctx, func(a localv1.AgentClient) error {
		r, err := a.List(ctx, &localv1.ListRequest{})
		for _, x := range r.GetSnapshots() {
			names = append(names, x.GetNamespace()+"/"+x.GetName())
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
