package command

import (
	"context"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
)

// storeCommands are the commands about the spool and the store as a whole.
type storeCommands struct {
	client  *client
	console *console
	run     runner
}

func (s *storeCommands) statStore() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:   "stat [--namespace NS]",
		Short: "Sum up sizes, snapshots and packs",
		Long: `Sum up the spool and the store: snapshots, raw and stored bytes, packs, packs that no snapshot names
("diapause gc" deletes these when they are old enough), and the dedup ratio. The dedup ratio says how
many times as large the packs would be if each snapshot had its own. The command reads every manifest,
and no pack.`,
		Args: cobra.NoArgs,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			if err := validNamespace(namespace); err != nil {
				return err
			}
			return s.runStatStore(ctx, &localv1.StatStoreRequest{Namespace: namespace})
		}),
	}
	namespaceFlag(c, &namespace, "only this `namespace` (default: all)")
	return c
}

func (s *storeCommands) runStatStore(ctx context.Context, req *localv1.StatStoreRequest) error {
	ctx, cancel := s.client.long(ctx)
	defer cancel()
	return s.client.ask(ctx, func(a localv1.AgentClient) error {
		stats := view.StoreStats{Stores: []view.StoreStat{}}
		display := progress.New(s.console.err, progress.Objects)
		stream, err := a.StatStore(ctx, req)
		if err == nil {
			err = receive(stream, func(e *localv1.StatStoreEvent) error {
				if p := e.GetProgress(); p != nil {
					display.Update(p.GetStage(), p.GetDone(), p.GetTotal())
				}
				if r := e.GetResult(); r != nil {
					stats.Add(r)
				}
				return nil
			})
		}
		display.Close()
		if err != nil {
			return failed("store stat", "", err)
		}
		return s.console.print(&stats)
	})
}
