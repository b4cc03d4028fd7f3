package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"diapause.dev/agent"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/place"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
	"diapause.dev/storage"
)

func rotateKeysCommand() *cobra.Command {
	var (
		cfg     agent.Config
		cluster clusterFlags
		logs    logging
	)
	cmd := &cobra.Command{
		Use: "rotate-keys [NAMESPACE]", Short: "Move encrypted snapshots in buckets to the current keys",
		Args: cobra.MaximumNArgs(1), SilenceUsage: true, SilenceErrors: true,
		Long: "rotate-keys does in the stores that all nodes see what \"diapause key rotate\" does on a node. Agents may\n" +
			"not overwrite objects of a bucket, and the controller may: run it in the controller's container, with the\n" +
			"controller's flags, after \"diapause key rotate\" on every node. You can interrupt it and run it again.",
	}
	f := cmd.Flags()
	storeFlags(f, &cfg)
	f.StringVar(&cluster.kubeconfig, "kubeconfig", "",
		"kubeconfig file (default: the service account of the program's pod)")
	logs.register(f, "warn")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		namespace := ""
		if len(args) > 0 {
			namespace = args[0]
		}
		if cfg.Logger, err = logs.logger(); err == nil {
			err = checkRotation(cfg, namespace)
		}
		if err != nil {
			return err
		}
		return rotateCluster(cmd.Context(), cfg, cluster, namespace, cmd.OutOrStdout())
	}
	return cmd
}

// checkRotation returns a usage error that names a flag or an argument whose value makes no sense.
func checkRotation(cfg agent.Config, namespace string) error {
	switch err := place.Validate(cfg.Store); {
	case err != nil:
		return usage.Error{Err: fmt.Errorf("--store: %w", err)}
	case cfg.Keys == "":
		return usage.Error{Err: errors.New("--encryption-keys: name the directory of the keys, as for the controller")}
	case namespace != "" && !snapshot.ValidName(namespace):
		return usage.Error{Err: fmt.Errorf("namespace %.80q: not a name", namespace)}
	}
	return nil
}

// rotateCluster rotates the keys in all stores of the cluster.
func rotateCluster(ctx context.Context, cfg agent.Config, c clusterFlags, namespace string, out io.Writer) error {
	rc, err := c.config("diapause-rotate-keys/" + version.Own())
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	locations, err := kube.StoresOf(ctx, rc, cfg.Store)
	if err != nil {
		return err
	}
	stores, err := snapshots.OpenCentral(snapshots.Options{
		Store: cfg.Store, StoreID: cfg.StoreID, Keys: cfg.Keys, AcceptNetworkDirectory: cfg.AcceptNetworkDirectory,
		Credentials: cfg.Credentials, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	return errors.Join(rotate(ctx, stores, locations, namespace, out), stores.Close())
}

// rotator is what rotate needs of snapshots.Central.
type rotator interface {
	Shared(location string) bool
	RotateKeys(ctx context.Context, namespace, location string) (storage.RewrapResult, error)
}

// rotate rotates the keys in each store that all nodes see, and says what it did. After an error it goes on with the
// next store.
func rotate(ctx context.Context, stores rotator, locations []string, namespace string, out io.Writer) error {
	var errs []error
	for _, location := range locations {
		if !stores.Shared(location) {
			fmt.Fprintf(out, "%s: a disk of each node: \"diapause key rotate\" does it there\n", location)
			continue
		}
		r, err := stores.RotateKeys(ctx, namespace, location)
		fmt.Fprintf(out, "%s: %d data keys, %d rewrapped\n", location, r.Keys, r.Rewrapped)
		if r.Denied > 0 {
			err = errors.Join(err, fmt.Errorf("%w to replace %d data keys: give this identity "+
				"roles/storage.objectUser on the bucket", storage.ErrDenied, r.Denied))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rotate keys in %s: %w", location, err))
		}
	}
	return errors.Join(errs...)
}
