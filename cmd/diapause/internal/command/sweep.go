package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/usage"
)

func (s *storeCommands) sweep() *cobra.Command {
	var dryRun bool
	var grace time.Duration
	c := &cobra.Command{
		Use:   "gc [--dry-run] [--grace 1h]",
		Short: "Delete what no snapshot uses any longer",
		Long: `Delete the packs that no snapshot names and that are older than the grace period. The grace period must
be longer than any checkpoint takes, because a pack is written before the manifest that names it.`,
		Args: cobra.NoArgs,
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be deleted")
	c.Flags().DurationVar(&grace, "grace", 0, "keep packs that are younger than this `time` (default: the agent's, 1h)")
	c.RunE = s.run(func(ctx context.Context, _ []string) error {
		req := &localv1.SweepRequest{DryRun: dryRun}
		if c.Flags().Changed("grace") {
			req.Grace = durationpb.New(grace)
		}
		if grace < 0 {
			return usage.Error{Err: fmt.Errorf("--grace %s: want 0 or more", grace)}
		}
		return s.runSweep(ctx, req)
	})
	return c
}

func (s *storeCommands) runSweep(ctx context.Context, req *localv1.SweepRequest) error {
	ctx, cancel := s.client.long(ctx)
	defer cancel()
	return s.client.ask(ctx, func(a localv1.AgentClient) error {
		display := progress.New(s.console.err, progress.Objects)
		result, err := follow(ctx, a, req, display)
		display.Close()
		if err != nil {
			return failed("gc", "", err)
		}
		return s.console.print(view.NewSweep(result, req.DryRun))
	})
}

// follow returns the result of a sweep.
func follow(ctx context.Context, a localv1.AgentClient, req *localv1.SweepRequest,
	d progress.Display,
) (*localv1.SweepResult, error) {
	var result *localv1.SweepResult
	s, err := a.Sweep(ctx, req)
	if err == nil {
		err = receive(s, func(e *localv1.SweepEvent) error {
			if p := e.GetProgress(); p != nil {
				d.Update(p.GetStage(), p.GetDone(), p.GetTotal())
			}
			if r := e.GetResult(); r != nil {
				result = r
			}
			return nil
		})
	}
	if err == nil && result == nil {
		err = errors.New("the agent ended the call without a result: see its log")
	}
	return result, err
}
