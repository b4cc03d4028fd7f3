package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
)

func (s *snapshotCommands) remove() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:     "rm [--namespace NS] SNAPSHOT...",
		Aliases: []string{"remove"},
		Short:   "Remove snapshots",
		Long: `Remove snapshots, at once and permanently, with all data that no other snapshot shares. If one
cannot be removed, the others still are. If all that failed did not exist, the exit code is 3.

On a node of a cluster, the snapshot's PodSnapshot is deleted with it. A snapshot that was made on
another node is refused: remove it there, or with kubectl.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: s.completeSnapshots,
		RunE: s.run(func(ctx context.Context, args []string) error {
			return s.runRemove(ctx, args, namespace)
		}),
	}
	namespaceFlag(c, &namespace, "`namespace` of the snapshots (default \"default\")")
	return c
}

func (s *snapshotCommands) runRemove(ctx context.Context, args []string, namespace string) error {
	keys, err := parseKeys(args, namespace)
	if err != nil {
		return err
	}
	ctx, cancel := s.client.query(ctx)
	defer cancel()
	return s.client.ask(ctx, func(a localv1.AgentClient) error {
		result := view.Removal{Removed: []string{}, Errors: []string{}}
		var errs []error
		for _, k := range keys {
			_, err := a.Remove(ctx, &localv1.RemoveRequest{Namespace: k.Namespace, Snapshot: k.Name})
			if err = failed("remove", k.String(), err); err != nil {
				errs = append(errs, err)
				result.Errors = append(result.Errors, err.Error())
				if ctx.Err() != nil {
					break
				}
				continue
			}
			result.Removed = append(result.Removed, k.String())
		}
		if err := s.console.print(result); err != nil {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
