package command

import (
	"context"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
)

func (t *tool) inspect() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:               "inspect [--namespace NS] SNAPSHOT",
		Short:             "Show a snapshot's identity, what a node must offer to restore it, its sizes and its timeline",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: t.completeSnapshots,
		RunE: t.run(func(ctx context.Context, args []string) error {
			return t.runInspect(ctx, args[0], namespace)
		}),
	}
	namespaceFlag(c, &namespace, "`namespace` of the snapshot (default \"default\")")
	return c
}

func (t *tool) runInspect(ctx context.Context, arg, namespace string) error {
	k, err := parseKey(arg, namespace)
	if err != nil {
		return err
	}
	ctx, cancel := t.query(ctx)
	defer cancel()
	return t.ask(ctx, func(a localv1.AgentClient) error {
		s, err := a.Inspect(ctx, &localv1.InspectRequest{Namespace: k.Namespace, Snapshot: k.Name})
		if err != nil {
			return failed("inspect", k.String(), err)
		}
		return t.print(view.NewSnapshot(s))
	})
}
