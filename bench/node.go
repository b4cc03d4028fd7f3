package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/types/known/durationpb"
	gvisorlog "gvisor.dev/gvisor/pkg/log"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cri"
	"diapause.dev/test/bed"
)

const (
	// namespace is that of all pods and snapshots.
	namespace = "default"
	// runDir is on a tmpfs.
	runDir = "/run/bench"
	// stateDir is the agent's, on a disk: its spool and its store.
	stateDir = "/var/lib/diapause"
	spoolDir = stateDir + "/spool/" + namespace
	storeDir = stateDir + "/store/" + namespace
)

// node is a bed with an agent, and all that is said to both.
type node struct {
	bed    *bed.Bed
	daemon *bed.Agent
	cri    *cri.Client
	conn   *grpc.ClientConn
	agent  localv1.AgentClient
	shim   localv1.ShimClient
	memory []memoryRow // what was charged, of each mode that runs pods

	cpuLimit int // of pods, in thousandths of a processor; 0: none
	dirty    int // MiB that workloads write in a second
}

// startNode starts a node whose agent gets the given flags.
func startNode(ctx context.Context, flags ...string) (*node, error) {
	return startNodeWith(ctx, nodeOptions{runsc: runscStock, flags: flags})
}

// nodeOptions say how a node differs from the usual.
type nodeOptions struct {
	runsc string   // see useRunsc
	logs  string   // directory for the logs of sentries; none are written if empty
	flags []string // of the agent
}

func startNodeWith(ctx context.Context, o nodeOptions) (n *node, err error) {
	gvisorlog.SetTarget(gvisorlog.GoogleEmitter{Writer: &gvisorlog.Writer{Next: io.Discard}})
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, err
	}
	if err := makeNetworkNamespace(); err != nil {
		return nil, err
	}
	n = &node{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close(context.WithoutCancel(ctx)))
		}
	}()
	var options bed.Options
	if o.logs != "" {
		options.Runsc = map[string]string{"debug-log": o.logs}
	}
	if n.bed, err = bed.Start(ctx, options); err != nil {
		return nil, err
	}
	if err := useRunsc(n.bed.Bin, o.runsc); err != nil {
		return nil, err
	}
	if n.daemon, err = n.bed.StartAgent(ctx, o.flags...); err != nil {
		return nil, err
	}
	if n.cri, err = cri.Dial(ctx, cri.Options{}); err != nil {
		return nil, err
	}
	if n.conn, err = n.bed.DialAgent(); err != nil {
		return nil, err
	}
	n.agent, n.shim = localv1.NewAgentClient(n.conn), localv1.NewShimClient(n.conn)
	return n, nil
}

// close ends what has been started.
func (n *node) close(ctx context.Context) error {
	var errs []error
	if n.conn != nil {
		errs = append(errs, n.conn.Close())
	}
	if n.cri != nil {
		errs = append(errs, n.cri.Close())
	}
	if n.bed != nil {
		errs = append(errs, n.bed.Close(ctx))
	}
	return errors.Join(errs...)
}

// restartAgent has an agent with other flags take the place of the one there is.
func (n *node) restartAgent(ctx context.Context, flags ...string) (err error) {
	if err := n.daemon.Stop(ctx); err != nil {
		return err
	}
	if n.daemon, err = n.bed.StartAgent(ctx, flags...); err != nil {
		return err
	}
	n.conn.ResetConnectBackoff() // or it would notice the new agent a second later
	for state := n.conn.GetState(); state != connectivity.Ready; state = n.conn.GetState() {
		n.conn.Connect()
		if !n.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("agent: connect: %w", context.Cause(ctx))
		}
	}
	return nil
}

func (n *node) agentLog() string {
	if n.daemon == nil {
		return ""
	}
	return n.daemon.Log()
}

// checkpoint makes a snapshot by the agent and returns when that is in the store. spooled is when
// it was safe on the node.
func (n *node) checkpoint(ctx context.Context, pod, name string) (spooled time.Time, err error) {
	return n.checkpointSeen(ctx, pod, name, func(string) {})
}

// checkpointSeen is checkpoint. It calls seen with each stage that the agent reports, again and again.
func (n *node) checkpointSeen(ctx context.Context, pod, name string, seen func(stage string)) (
	spooled time.Time, err error,
) {
	stream, err := n.agent.Checkpoint(ctx, &localv1.CheckpointRequest{Target: pod, Name: name})
	if err != nil {
		return spooled, fmt.Errorf("agent: %w", err)
	}
	for {
		e, err := stream.Recv()
		switch {
		case err == io.EOF && !spooled.IsZero():
			return spooled, nil
		case err != nil:
			return spooled, fmt.Errorf("agent: %w", err)
		case e.GetProgress() != nil:
			seen(e.GetProgress().Stage)
		case e.GetSpooled() != nil:
			spooled = time.Now()
		}
	}
}

// remove removes a snapshot with all that it has stored.
func (n *node) remove(ctx context.Context, name string) error {
	_, err := n.agent.Remove(ctx, &localv1.RemoveRequest{Namespace: namespace, Snapshot: name})
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	// No checkpoint is under way whose packs could be taken for nobody's.
	stream, err := n.agent.Sweep(ctx, &localv1.SweepRequest{Grace: durationpb.New(time.Nanosecond)})
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF {
		return fmt.Errorf("agent: sweep: %w", err)
	}
	return nil
}
