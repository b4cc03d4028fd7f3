package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/trial"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
)

func trialCommand() *cobra.Command {
	var (
		cluster clusterFlags
		c       trial.Config
		limit   time.Duration
	)
	cmd := &cobra.Command{
		Use: "trial", Short: "Try an installation with one pod", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		Long: "trial makes a pod, checkpoints it, restores it, puts it to sleep and wakes it. It fails unless the pod's\n" +
			"memory is the same after each step, and removes all that it has made. It runs in a pod of the cluster, whose\n" +
			"image it uses. With the Helm chart, run helm test instead.",
	}
	f := cmd.Flags()
	cluster.registerAccess(f)
	f.StringVar(&cluster.namespace, "namespace", "", "namespace of the program's pod, and of what it makes "+
		"(default: that of the program's pod)")
	f.StringVar(&c.Pod, "pod", "", "name of the program's pod")
	f.StringVar(&c.RuntimeClass, "runtime-class", "diapause", "RuntimeClass of the pod that it makes")
	f.StringVar(&c.StorageConfig, "storage-config", "", "PodSnapshotStorageConfig to store in")
	f.DurationVar(&limit, "timeout", 4*time.Minute, "time limit for all steps")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.Pod == "" || c.StorageConfig == "" {
			return usage.Error{Err: fmt.Errorf("give --pod and --storage-config")}
		}
		rc, err := cluster.config("diapause-trial/" + version.Own())
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		c.Namespace, c.Out = cluster.ofAgents(), cmd.OutOrStdout()
		return kube.Try(cmd.Context(), rc, limit, c)
	}
	cmd.AddCommand(&cobra.Command{
		Use: "workload", Short: "What runs in the pod of a trial", Args: cobra.NoArgs, Hidden: true,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return trial.Live(cmd.Context(), cmd.OutOrStdout()) },
	})
	return cmd
}

func canUninstallCommand() *cobra.Command {
	var cluster clusterFlags
	cmd := &cobra.Command{
		Use: "can-uninstall", Short: "Fail if a removal from the cluster would strand anything", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		Long: "can-uninstall names the pods that sleep, and fails if there are any: without agents they never wake. While\n" +
			"there are agents it does the same with PodSnapshots that are being deleted. The Helm chart runs it before it\n" +
			"removes the agents.",
	}
	cluster.registerAccess(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rc, err := cluster.config("diapause-can-uninstall/" + version.Own())
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		return kube.CanUninstall(cmd.Context(), rc)
	}
	return cmd
}
