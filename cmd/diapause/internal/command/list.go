package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/table"
)

func (s *snapshotCommands) list() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:     "ls [--namespace NS]",
		Aliases: []string{"list"},
		Short:   "List the snapshots of this node and of the store",
		Long: `List the snapshots of this node and of the store. WHERE says what each can be restored from: "node" is
this node's own copy, and "store" is the store, from which any node can restore it.

Standard error lists snapshots that cannot be read as damaged. If an attempt to store a snapshot has
failed, it says why. If a store cannot be reached, it says so, and the exit code is 1; the list then
contains what the other stores have.`,
		Args: cobra.NoArgs,
		RunE: s.run(func(ctx context.Context, _ []string) error { return s.runList(ctx, namespace) }),
	}
	namespaceFlag(c, &namespace, "only this `namespace` (default: all)")
	return c
}

func (s *snapshotCommands) runList(ctx context.Context, namespace string) error {
	if err := validNamespace(namespace); err != nil {
		return err
	}
	ctx, cancel := s.client.query(ctx)
	defer cancel()
	return s.client.ask(ctx, func(a localv1.AgentClient) error {
		r, err := a.List(ctx, &localv1.ListRequest{Namespace: namespace})
		if err != nil {
			return failed("list snapshots", "", err)
		}
		for _, d := range r.GetDamaged() {
			fmt.Fprintln(s.console.err, "damaged: "+table.Clean(d))
		}
		for _, x := range r.GetSnapshots() {
			if p := x.GetProblem(); p != "" {
				fmt.Fprintln(s.console.err, "problem: "+table.Clean(x.GetNamespace()+"/"+x.GetName()+": "+p))
			}
		}
		var errs []error
		for _, u := range r.GetUnreachable() {
			errs = append(errs, fmt.Errorf("list snapshots: %s", u))
		}
		return errors.Join(append(errs, s.console.print(view.NewList(r)))...)
	})
}
