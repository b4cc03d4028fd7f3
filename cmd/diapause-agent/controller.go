package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"diapause.dev/agent"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/place"
	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/storemetrics"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
)

func controllerCommand() *cobra.Command {
	var (
		c    = controller{cfg: agent.Config{Version: version.Own()}}
		logs logging
	)
	cmd := &cobra.Command{
		Use: "controller", Short: "Do the cluster-wide tasks that no node may do", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		Long: "controller deletes PodSnapshots and what nothing needs in the stores, answers triggers that no node\n" +
			"answers, and says whether policies and stores can be used. It needs no node and no privileges. Of several\n" +
			"controllers one works, the holder of the Lease; the others take over from it.",
	}
	f := cmd.Flags()
	storeFlags(f, &c.cfg)
	c.cluster.registerShared(f)
	f.StringVar(&c.cfg.Node, "node", "", "name of the node that the controller runs on, for events")
	watching(f, &c.cfg, &logs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := place.Validate(c.cfg.Store); err != nil {
			return usage.Error{Err: fmt.Errorf("--store: %w", err)}
		}
		if c.cfg.Logger, err = logs.logger(); err != nil {
			return err
		}
		return c.run(cmd.Context())
	}
	return cmd
}

// controller is the cluster's controller. Of the agent's configuration it has what both have.
type controller struct {
	cfg     agent.Config
	cluster clusterFlags
	metrics *prometheus.Registry
}

// run works until ctx is done.
func (c *controller) run(ctx context.Context) error {
	saveMemory()
	c.metrics = prometheus.NewRegistry()
	c.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.metrics.MustRegister(agent.BuildInfo(c.cfg.Version))
	stores, err := snapshots.OpenCentral(snapshots.Options{
		Store: c.cfg.Store, StoreID: c.cfg.StoreID, Keys: c.cfg.Keys,
		AcceptNetworkDirectory: c.cfg.AcceptNetworkDirectory, Credentials: c.cfg.Credentials,
		Measure: storemetrics.New(c.metrics).Backend, Logger: c.cfg.Logger,
	})
	if err != nil {
		return err
	}
	err = errors.Join(c.serve(ctx, stores), stores.Close())
	c.cfg.Logger.Info("controller stopped")
	return err
}

// serve does the duties, and serves the metrics.
func (c *controller) serve(ctx context.Context, stores *snapshots.Central) error {
	k, err := c.join(stores)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.Run(ctx) })
	if c.cfg.MetricsAddr != "" {
		g.Go(func() error { return agent.ServeMetrics(ctx, c.cfg.MetricsAddr, c.metrics) })
	}
	c.cfg.Logger.Info("controller started", "version", c.cfg.Version, "store", c.cfg.Store)
	return g.Wait()
}

// join makes the part that knows the cluster.
func (c *controller) join(stores *snapshots.Central) (*kube.Controller, error) {
	rc, err := c.cluster.config("diapause-controller/" + c.cfg.Version)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return kube.NewController(kube.ControllerConfig{
		RestConfig: rc, Name: host + "_" + uuid.NewString(), NodeName: c.cfg.Node, Namespace: c.cluster.ofAgents(),
		Store: c.cfg.Store, OrphanAge: c.cluster.orphanAge, Metrics: c.metrics, Logger: c.cfg.Logger,
	}, stores)
}
