package command

import (
	"context"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
)

func (s *snapshotCommands) inspect() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:               "inspect [--namespace NS] SNAPSHOT",
		Short:             "Show a snapshot's identity, what a node must offer to restore it, its sizes and its timeline",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSnapshots,
		RunE: s.run(func(ctx context.Context, args []string) error {
			return s.runInspect(ctx, args[0], namespace)
		}),
	}
	namespaceFlag(c, &namespace, "`namespace` of the snapshot (default \"default\")")
	return c
}

func (s *snapshotCommands) runInspect(ctx context.Context, arg, namespace string) error {
	k, err := parseKey(arg, namespace)
	if err != nil {
		return err
	}
	ctx, cancel := s.client.query(ctx)
	defer cancel()
	return s.client.ask(ctx, func(a localv1.AgentClient) error {
		found, err := a.Inspect(ctx, &localv1.InspectRequest{Namespace: k.Namespace, Snapshot: k.Name})
		if err != nil {
			return failed("inspect", k.String(), err)
		}
		return s.console.print(view.NewSnapshot(found))
	})
}
