package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"diapause.dev/agent/place"
	"diapause.dev/cmd/internal/usage"
)

func makeStoreCommand() *cobra.Command {
	var (
		location      string
		acceptNetwork bool
	)
	cmd := &cobra.Command{
		Use: "make-store", Short: "Make a store for snapshots", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		Long: "make-store makes a store, unless there is one already, and prints its identity for --store-id. An agent\n" +
			"makes a store by itself only in a bucket or below its state directory. In any other directory, a disk may\n" +
			"still have to be mounted first.",
	}
	f := cmd.Flags()
	f.StringVar(&location, "store", "",
		"where to make the store: "+place.Forms)
	f.BoolVar(&acceptNetwork, "accept-network-directory", false,
		"make it even if nodes may see each other's changes late there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := place.Validate(location); err != nil {
			return usage.Error{Err: fmt.Errorf("--store: %w", err)}
		}
		identity, made, err := place.MakeStore(cmd.Context(), location, acceptNetwork)
		if err != nil {
			return err
		}
		what := "there is a store"
		if made {
			what = "made a store"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s at %s; its identity is %s\n", what, location, identity)
		return nil
	}
	return cmd
}
