// Command diapause-agent is the daemon of a node: see diapause.dev/agent.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // authorities to trust where the image or the node has no certificates

	"diapause.dev/agent"
	"diapause.dev/agent/place"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/cmd/internal/version"
	"diapause.dev/runsc/past"
	"diapause.dev/runsc/sleep"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := execute(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "diapause-agent:", err)
	}
	stop()
	os.Exit(exitCode(err))
}

// execute runs a command line.
func execute(ctx context.Context, args []string) error {
	c, understood := command(), false
	c.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	if err != nil && !understood {
		err = usage.Error{Err: fmt.Errorf("%w; see --help", err)}
	}
	return err
}

// defaultMemory is the budget for the memory of checkpoints, in bytes. The memory limit in manifests/daemonset.yaml is
// made for it.
const defaultMemory = 3 << 30

func command() *cobra.Command {
	var (
		cfg     agent.Config
		cluster clusterFlags
		logs    logging
	)
	cmd := &cobra.Command{
		Use:   "diapause-agent",
		Short: "Checkpoints and restores running gVisor pods of this node",
		Long: "diapause-agent takes requests to checkpoint and restore the gVisor pods of this node.\n" +
			"It needs root, containerd, and containerd-shim-diapause-v1 as the pods' runtime.\n" +
			"Operators speak to it with diapause(1) over its local socket.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Logger, err = logs.logger(); err != nil {
				return err
			}
			return run(cmd.Context(), cfg, cluster)
		},
	}
	node, _ := os.Hostname() // empty: --node must name it
	f := cmd.Flags()
	f.StringVar(&cfg.Socket, "socket", "/run/diapause/agent.sock", "socket of the local service (root only)")
	f.StringVar(&cfg.SidecarSocket, "sidecar-socket", "/run/diapause/gofer.sock", "socket for checkpointgofer (root only)")
	f.StringVar(&cfg.RequestDir, "request-dir", "/run/diapause/requests", "directory for requests in progress; a tmpfs")
	f.StringVar(&cfg.StoppedDir, "stopped-dir", "/run/diapause/stopped",
		"directory of markers that tell the shim which sandboxes were stopped")
	f.StringVar(&cfg.StateDir, "state-dir", "/var/lib/diapause",
		"directory of the journal and the spool; must survive a reboot")
	storeFlags(f, &cfg)
	f.StringVar(&cfg.Containerd, "containerd", "/run/containerd/containerd.sock", "containerd's socket")
	f.StringVar(&cfg.RunscConfig, "runsc-config", "/etc/containerd/diapause-runsc.toml",
		"configuration file of the shim (containerd's ConfigPath)")
	limits(f, &cfg)
	f.StringVar(&cfg.Codec, "codec", "",
		"compression of chunks: none, s2, zstd, or auto, which measures which is fastest, chunk by chunk (default: zstd if "+
			"the store is a bucket, otherwise auto)")
	f.StringVar(&cfg.SigningKey, "signing-key", "",
		"PEM `file` of the Ed25519 private key that signs this node's snapshots (default: they are not signed)")
	f.StringVar(&cfg.TrustedKeys, "trusted-keys", "",
		"PEM `file` of public keys; nothing is restored that none of them has signed (default: everything is)")
	f.DurationVar(&cfg.CaptureTime, "capture-time", 2*time.Minute,
		"time limit for a capture; after it the checkpoint fails, and the sandbox runs on")
	f.BoolVar(&cfg.WorkloadSaves, "workload-saves", false,
		"without --kubernetes: let pods whose annotations ask for it save themselves; in a cluster PodSnapshotPolicies say "+
			"which may")
	f.StringVar(&cfg.Node, "node", node, "name of this node")
	watching(f, &cfg, &logs)
	cluster.register(f)
	cfg.Version, cfg.Reminders, cfg.Past = version.Own(), sleep.Reminders, past.Dir
	cmd.Version = cfg.Version
	cmd.AddCommand(installCommand(), uninstallCommand(), makeStoreCommand(), controllerCommand(),
		rotateKeysCommand(), adoptCommand(), trialCommand(), canUninstallCommand())
	return cmd
}

// limits registers the flags that bound what checkpoints and restores take of the node.
func limits(f *pflag.FlagSet, cfg *agent.Config) {
	f.Int64Var(&cfg.Arena, "arena", 2<<30,
		"memory limit, in bytes, for one checkpoint's capture; beyond it, pages go to a file in the spool and the pause "+
			"grows")
	f.Int64Var(&cfg.PrecopyFrom, "precopy-from", 512<<20,
		"size, in bytes, from which on a pod's memory is stored before the pause, while the pod runs; in the pause, only "+
			"what has changed since is copied; 0: never. Of a pod that goes to sleep, memory of any size is")
	f.DurationVar(&cfg.PrecopyTime, "precopy-time", 2*time.Minute,
		"how long storing memory before the pause gives way to everything else on the node, unless the pod is to be "+
			"stopped; after that, or with 0, it takes up to half of the CPUs")
	f.Int64Var(&cfg.Memory, "checkpoint-memory", defaultMemory,
		"memory limit, in bytes, for all checkpoints in progress together; further ones wait before their pause, and one "+
			"that can never fit is refused. The agent needs 2 GiB more than that")
	f.Int64Var(&cfg.ReadyMemory, "ready-memory", 512<<20,
		"bytes of memory for sandboxes that are created for sleeping pods, so that these wake faster; 0: none is created")
	f.Int64Var(&cfg.WakeReserve, "wake-reserve", 512<<20,
		"memory of the node, in bytes, that pods which sleep leave free when they wake; one for which there is not enough "+
			"waits, while idle pods that may sleep are put to sleep for it; 0: all wake at once")
	f.BoolVar(&cfg.KeepCPULimits, "keep-cpu-limits", false,
		"leave pods their CPU limits while they are saved and restored; the pause and the wake-up of such a "+
			"pod then take many times as long")
	f.IntVar(&cfg.DiskFloor, "disk-floor", 10,
		"percentage of the spool's disk that stays free; a checkpoint that may write more is refused before its pause; 0: "+
			"none is")
	f.Int64Var(&cfg.BacklogSize, "backlog-size", 64<<30,
		"limit, in bytes, for snapshots that are on this node and not in their store yet; beyond it, or half of it in one "+
			"namespace, checkpoints are refused before their pause; 0: no limit")
	f.IntVar(&cfg.BacklogCount, "backlog-count", 1000,
		"limit for the number of such snapshots; 0: no limit")
	f.Int64Var(&cfg.VolumeLimit, "volume-limit", 16<<30,
		"limit, in bytes, for a pod's emptyDir volumes that are on the node and not inside the sandbox; a pod with more is "+
			"neither checkpointed nor restored")
	f.Int64Var(&cfg.CacheSize, "cache-size", 10<<30,
		"limit, in bytes, for what this node keeps for later restores: replicated snapshots and, up to half of the limit, "+
			"what was read from a remote store")
}

func run(ctx context.Context, cfg agent.Config, cluster clusterFlags) error {
	saveMemory()
	if err := check(cfg); err != nil {
		return usage.Error{Err: err}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("must run as root")
	}
	var err error
	if cfg.Cluster, err = cluster.of(cfg); err != nil {
		return err
	}
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	err = a.Run(ctx)
	if closeErr := a.Close(); err == nil {
		err = closeErr
	}
	cfg.Logger.Info("agent stopped")
	return err
}

// check returns an error that names a flag whose value makes no sense.
func check(cfg agent.Config) error {
	if err := place.Validate(cfg.Store); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	switch {
	case cfg.PrecopyFrom < 0:
		return fmt.Errorf("--precopy-from %d: want 0 or more bytes", cfg.PrecopyFrom)
	case cfg.PrecopyTime < 0:
		return fmt.Errorf("--precopy-time %v: want 0 or more", cfg.PrecopyTime)
	case cfg.Arena < 0:
		return fmt.Errorf("--arena %d: want 0 or more bytes", cfg.Arena)
	case cfg.Memory <= 0:
		return fmt.Errorf("--checkpoint-memory %d: want more than 0 bytes", cfg.Memory)
	case cfg.DiskFloor < 0 || cfg.DiskFloor > 99:
		return fmt.Errorf("--disk-floor %d: want a percentage from 0 to 99", cfg.DiskFloor)
	case cfg.BacklogSize < 0:
		return fmt.Errorf("--backlog-size %d: want 0 or more bytes", cfg.BacklogSize)
	case cfg.BacklogCount < 0:
		return fmt.Errorf("--backlog-count %d: want 0 or more snapshots", cfg.BacklogCount)
	case cfg.ReadyMemory < 0:
		return fmt.Errorf("--ready-memory %d: want 0 or more bytes", cfg.ReadyMemory)
	case cfg.WakeReserve < 0:
		return fmt.Errorf("--wake-reserve %d: want 0 or more bytes", cfg.WakeReserve)
	case cfg.CacheSize < 0:
		return fmt.Errorf("--cache-size %d: want 0 or more bytes", cfg.CacheSize)
	case cfg.VolumeLimit < 0:
		return fmt.Errorf("--volume-limit %d: want 0 or more bytes", cfg.VolumeLimit)
	case cfg.CaptureTime <= 0:
		return fmt.Errorf("--capture-time %v: want a time greater than 0", cfg.CaptureTime)
	}
	return nil
}
