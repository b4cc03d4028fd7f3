package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"diapause.dev/agent"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/adopt"
	"diapause.dev/agent/place"
	"diapause.dev/agent/snapshots"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
	"diapause.dev/storage/signing"
)

func adoptCommand() *cobra.Command {
	var (
		cfg     agent.Config
		cluster clusterFlags
		c       adopt.Config
		logs    logging
	)
	cmd := &cobra.Command{
		Use: "adopt", Short: "Have a cluster take over the snapshots of another one", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		Long: "adopt makes PodSnapshots in a new cluster for what an old one has left in a store. Run it as an\n" +
			"administrator of the new cluster, who may also write into the store. Without --dry-run=false it only says\n" +
			"what it would take over, and what not and why. It is refused while the old cluster's controller lives.",
	}
	f := cmd.Flags()
	storeFlags(f, &cfg)
	f.StringVar(&cluster.kubeconfig, "kubeconfig", "",
		"kubeconfig file of an administrator (default: the service account of the program's pod)")
	f.StringVar(&cfg.TrustedKeys, "trusted-keys", "",
		"PEM `file` of public keys; only what one of them has signed is adopted")
	f.StringVar(&c.From, "from", "",
		"the old `cluster`: the UID of its namespace kube-system (default: list those of all)")
	f.StringSliceVar(&c.Namespaces, "in", nil, "only these `namespaces` (default: all)")
	f.BoolVar(&c.AcceptUnsigned, "accept-unsigned", false, "adopt what no trusted key has signed: "+
		"anyone who can write into the store decides then what pods start from")
	f.BoolVar(&c.Ended, "old-controller-ended", false,
		"the old cluster's controller has ended for good; counts only if it has left no sign of life in the store")
	f.BoolVar(&c.DryRun, "dry-run", true, "only say what would be adopted")
	logs.register(f, "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := place.Validate(cfg.Store); err != nil {
			return usage.Error{Err: fmt.Errorf("--store: %w", err)}
		}
		if cfg.Logger, err = logs.logger(); err != nil {
			return err
		}
		if cfg.TrustedKeys != "" {
			if c.Trusted, err = signing.ReadPublic(cfg.TrustedKeys); err != nil {
				return usage.Error{Err: fmt.Errorf("--trusted-keys: %w", err)}
			}
		}
		return runAdopt(cmd, cfg, cluster, c)
	}
	return cmd
}

// runAdopt opens the store, and prints what was found there or taken over.
func runAdopt(cmd *cobra.Command, cfg agent.Config, cluster clusterFlags, c adopt.Config) error {
	rc, err := cluster.config("diapause-adopt/" + version.Own())
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	o := snapshots.Options{
		Store: cfg.Store, StoreID: cfg.StoreID, Keys: cfg.Keys, AcceptNetworkDirectory: cfg.AcceptNetworkDirectory,
		Credentials: cfg.Credentials, Logger: cfg.Logger.With(slog.String("store", cfg.Store)),
	}
	a := place.Access{AcceptNetwork: cfg.AcceptNetworkDirectory, Credentials: cfg.Credentials}
	if err := a.CheckStore(cmd.Context(), cfg.Store); err != nil { // opening it would make one
		return err
	}
	stores, err := snapshots.OpenCentral(o)
	if err != nil {
		return err
	}
	c.Location, c.Stores = cfg.Store, stores
	report, err := kube.Adopt(cmd.Context(), rc, c)
	return errors.Join(report.Write(cmd.OutOrStdout()), err, stores.Close())
}
