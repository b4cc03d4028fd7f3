package shim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/use"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	defaultSocket = "/run/diapause/agent.sock"
	// socketVariable is the environment variable that names another socket of the agent.
	socketVariable = "DIAPAUSE_AGENT_SOCKET"
)

// How long the shim waits for an answer of the agent. A pod that names a snapshot, would rather fail than start anew,
// or slept when the node went down, waits long enough for a restart of the agent (patientWait). On a node of a cluster
// every pod waits longer (clusterWait): the cluster may have a snapshot for a pod that names none, and its agent may
// even be replaced meanwhile. Any other pod must not be slowed down (briefWait). An agent that is working on the answer
// says so. The shim then asks again, for at most askLimit.
const (
	clusterWait = 15 * time.Second
	patientWait = 5 * time.Second
	briefWait   = 500 * time.Millisecond
	askLimit    = 75 * time.Second
	reportWait  = 10 * time.Second
	reportPause = time.Second // between two attempts to report the same
	retryPause  = 25 * time.Millisecond
)

// clusterMarker is a file beside the agent's socket. It exists if the node belongs to a cluster.
const clusterMarker = "cluster"

// idleTime is how long a connection to the agent stays without a call. The few calls by which a pod is restored share
// one.
const idleTime = 5 * time.Second

// agent is the agent of this node as the shim sees it.
type agent struct {
	socket string
	dial   func() (*grpc.ClientConn, error) // returns the same each time; see idleTime
}

func localAgent() agent {
	if s := os.Getenv(socketVariable); s != "" {
		return newAgent(s)
	}
	return newAgent(defaultSocket)
}

func newAgent(socket string) agent {
	return agent{socket: socket, dial: sync.OnceValues(func() (*grpc.ClientConn, error) {
		return grpc.NewClient("unix://"+socket,
			grpc.WithIdleTimeout(idleTime),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDisableServiceConfig(),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: retryPause, Multiplier: 1.5, MaxDelay: 4 * retryPause},
				MinConnectTimeout: time.Second,
			}))
	})}
}

// stoppedMarker is the file that the agent leaves when it has ended a sandbox after its checkpoint.
func (a agent) stoppedMarker(sandbox string) string {
	return filepath.Join(filepath.Dir(a.socket), "stopped", sandbox)
}

// ask asks whether to restore the sandbox; sandbox.settle acts on the answer. It keeps asking for as long as the pod
// may wait. The error says why there is no answer.
func (a agent) ask(ctx context.Context, p pod, req *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
	wait, err := a.patience(p)
	if err != nil {
		return nil, err
	}
	for limit := time.Now().Add(askLimit); time.Now().Before(limit); {
		resp, err := a.askOnce(ctx, wait, req)
		if err != nil || resp.GetDecision() != localv1.AskRestoreResponse_WAIT {
			return resp, err
		}
	}
	return nil, fmt.Errorf("the agent has not decided within %v", askLimit)
}

// patience returns how long a pod may wait for an answer. If there is no agent to wait for, it returns an error.
func (a agent) patience(p pod) (time.Duration, error) {
	if _, err := os.Stat(filepath.Join(filepath.Dir(a.socket), clusterMarker)); err == nil {
		return clusterWait, nil
	}
	if p.named() || p.must() {
		return patientWait, nil
	}
	if _, err := os.Stat(a.socket); err != nil {
		return 0, fmt.Errorf("no agent on this node: %w", err)
	}
	return briefWait, nil
}

// askOnce returns the agent's next answer.
func (a agent) askOnce(ctx context.Context, wait time.Duration,
	req *localv1.AskRestoreRequest,
) (*localv1.AskRestoreResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var resp *localv1.AskRestoreResponse
	err := a.call(ctx, func(c localv1.ShimClient) (err error) {
		resp, err = c.AskRestore(ctx, req)
		return err
	})
	if ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded { // the agent enforces the deadline too
		return nil, fmt.Errorf("no answer within %v: %w", wait, err)
	}
	if err != nil {
		return nil, err
	}
	return resp, check(resp)
}

// check refuses an answer that the shim cannot act on.
func check(resp *localv1.AskRestoreResponse) error {
	switch d := resp.GetDecision(); d {
	case localv1.AskRestoreResponse_START, localv1.AskRestoreResponse_FAIL, localv1.AskRestoreResponse_WAIT:
		return nil
	case localv1.AskRestoreResponse_RESTORE, localv1.AskRestoreResponse_RESTORE_ROOTFS:
		if !filepath.IsAbs(resp.GetImagePath()) {
			return fmt.Errorf("the agent wants a restore from %.80q, which is not an absolute path", resp.GetImagePath())
		}
		return nil
	default:
		return fmt.Errorf("the agent's decision %v is not known to this shim", d)
	}
}

// report reports the progress of a restore to the agent.
func (a agent) report(ctx context.Context, req *localv1.ReportRestoreRequest) error {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	return a.call(ctx, func(c localv1.ShimClient) error {
		_, err := c.ReportRestore(ctx, req)
		return err
	})
}

// giveUp tells the agent that a sandbox will not be restored, so that it can discard what it has prepared. If the
// agent does not answer, giveUp returns after briefWait, and the agent finds out by itself.
func (a agent) giveUp(ctx context.Context, sandbox, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), briefWait)
	defer cancel()
	err := a.report(ctx, &localv1.ReportRestoreRequest{SandboxId: sandbox, GivenUp: true, Error: reason})
	if err != nil {
		slog.Warn("the agent was not told that the sandbox is not restored", "sandbox", sandbox, "error", err)
	}
}

// prepareWorkload returns the image path for a sandbox whose processes may save it, or its files alone.
func (a agent) prepareWorkload(ctx context.Context, sandbox string, rootfs bool) (path string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patientWait)
	defer cancel()
	err = a.call(ctx, func(c localv1.ShimClient) error {
		resp, err := c.PrepareWorkload(ctx, &localv1.PrepareWorkloadRequest{SandboxId: sandbox, RootfsOnly: rootfs})
		path = resp.GetImagePath()
		return err
	})
	if err == nil && !filepath.IsAbs(path) {
		err = fmt.Errorf("the agent's image path %.80q is not absolute", path)
	}
	return path, err
}

// checkContainer returns why a container must not be started in a sandbox that is restored. An agent of an earlier
// version does not check.
func (a agent) checkContainer(ctx context.Context, request, id string) error {
	ctx, cancel := context.WithTimeout(ctx, patientWait)
	defer cancel()
	return a.call(ctx, func(c localv1.ShimClient) error {
		_, err := c.CheckContainer(ctx, &localv1.CheckContainerRequest{Request: request, ContainerId: id})
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		return err
	})
}

// call runs f against the agent until f succeeds, fails for good, or ctx ends. While the agent is not reachable, call
// retries.
func (a agent) call(ctx context.Context, f func(localv1.ShimClient) error) error {
	conn, err := a.dial()
	if err != nil {
		return fmt.Errorf("agent at %s: %w", a.socket, err)
	}
	for {
		err := f(localv1.NewShimClient(conn))
		if err == nil {
			return nil
		}
		if status.Code(err) == codes.Unavailable {
			select {
			case <-time.After(retryPause):
				continue
			case <-ctx.Done():
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
		}
		return fmt.Errorf("agent at %s: %w", a.socket, err)
	}
}

// usedFile returns the path of a sandbox's file in the directory of package use.
func (a agent) usedFile(sandbox string) string {
	if sandbox == "" {
		return ""
	}
	return filepath.Join(use.Dir(a.socket), sandbox)
}

// answer is the result of asking the agent.
type answer struct {
	resp    *localv1.AskRestoreResponse
	err     error
	volumes []string // names of the volumes that were put in place for it
}

// rootfs reports whether root file systems are to be restored.
func (a answer) rootfs() bool {
	return a.err == nil && a.resp.GetDecision() == localv1.AskRestoreResponse_RESTORE_ROOTFS
}

// order returns the order in the agent's answer.
func (a answer) order() order {
	return order{
		Request: a.resp.GetRequest(), ImagePath: a.resp.GetImagePath(), Snapshot: a.resp.GetSnapshot(),
		Containers: int(a.resp.GetContainers()),
		Ended:      a.resp.GetEndedContainers(), Rootfs: a.rootfs(), Volumes: a.volumes,
		Terminals: terminalsOf(a.resp), ExitCodes: a.resp.GetExitCodes(),
	}
}
