package command

import (
	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
)

// podCommands are the commands about pods of this node.
type podCommands struct {
	client  *client
	console *console
	run     runner
}

// completePods offers the pods of this node to the shell. If the agent is away, it offers nothing.
func (p *podCommands) completePods(c *cobra.Command, args []string,
	_ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := p.client.within(c.Context(), askTime)
	defer cancel()
	var pods []cobra.Completion
	_ = p.client.ask(ctx, func(a localv1.AgentClient) error {
		r, err := a.Top(ctx, &localv1.TopRequest{})
		for _, s := range r.GetSandboxes() {
			pods = append(pods, s.GetNamespace()+"/"+s.GetPod())
		}
		return err
	})
	return pods, cobra.ShellCompDirectiveNoFileComp
}
