package command

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/usage"
)

// home moves the cursor to the top left corner and clears the screen below it.
const home = "\x1b[H\x1b[J"

func (p *podCommands) top() *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use:   "top [--interval 1s]",
		Short: "Show the sandboxes of this node and what is in progress in them",
		Long: "Show the sandboxes of this node and what is in progress in them. On a terminal it updates until Ctrl-C; " +
			"elsewhere, and as JSON, it prints once.",
		Args: cobra.NoArgs,
		RunE: p.run(func(ctx context.Context, _ []string) error {
			if interval < 100*time.Millisecond {
				return usage.Error{Err: fmt.Errorf("--interval %s: want at least 100ms", interval)}
			}
			return p.client.ask(ctx, func(a localv1.AgentClient) error {
				if p.console.format == view.Table && progress.Terminal(p.console.out) {
					return p.live(ctx, a, interval)
				}
				top, err := p.sandboxes(ctx, a)
				if err != nil {
					return err
				}
				return p.console.print(top)
			})
		}),
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "`time` between updates")
	return c
}

func (p *podCommands) sandboxes(ctx context.Context, a localv1.AgentClient) (view.Top, error) {
	ctx, cancel := p.client.query(ctx)
	defer cancel()
	r, err := a.Top(ctx, &localv1.TopRequest{})
	return view.NewTop(r), failed("top", "", err)
}

// live draws the table again and again until the operator interrupts it, which is no failure.
func (p *podCommands) live(ctx context.Context, a localv1.AgentClient, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		top, err := p.sandboxes(ctx, a)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		frame := bytes.NewBufferString(home)
		fmt.Fprintf(frame, "%s   every %s   Ctrl-C to end\n\n", time.Now().Format(time.TimeOnly), interval)
		if err := top.Table(frame); err != nil {
			return err
		}
		if _, err := frame.WriteTo(p.console.out); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
