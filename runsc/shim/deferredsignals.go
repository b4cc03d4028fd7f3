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
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"
)

// In a cluster the agent may save a pod that is deleted before its containers are told to end. So the shim asks before
// it delivers a signal; the agent decides in agent/kube/request/termination.go. While the pod is saved, the signal is
// held. Containerd has its answer at once, so that the grace period goes on: SIGKILL comes in time, and is never held.

const (
	// mostHeld bounds how long a signal is held, whatever the agent says.
	mostHeld = time.Hour
	// endWait is how long the shim waits for the agent's answer. A node that is drained is busy.
	endWait = 2 * time.Second
	// silentWait is for how long the agent may be silent while it saves the pod. A signal that comes in the middle of a
	// save makes it fail.
	silentWait = 5 * time.Second
)

// deferredSignals are the signals that wait until their pod is saved. Its methods may be called concurrently.
type deferredSignals struct {
	agent agent
	pod   pod

	mu  sync.Mutex
	all map[string]bool // by container id; containers for which a signal is held
}

// begin notes that a signal for a container is held, and reports whether none was held before.
func (d *deferredSignals) begin(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = make(map[string]bool)
	}
	first := !d.all[id]
	d.all[id] = true
	return first
}

func (d *deferredSignals) end(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, id)
}

// deferSignal reports whether a signal is not to be delivered now, because the agent saves the pod or has saved it. If
// the pod is not saved in the end, send delivers the signal. Saved, if set, ends a pod that is saved and that the agent
// does not end: it sleeps.
func (d *deferredSignals) deferSignal(ctx context.Context, r *task.KillRequest,
	send, saved func(context.Context, *task.KillRequest) error,
) bool {
	signal := unix.Signal(r.Signal)
	if r.ExecID != "" || signal == unix.SIGKILL || signal == 0 || d.pod.uid == "" || !d.agent.inCluster() {
		return false
	}
	resp, err := d.agent.askEnd(ctx, d.pod)
	if err != nil {
		slog.Warn("the container gets its signal although the agent was not heard", "container", r.ID, "signal", signal,
			"error", err)
		return false
	}
	switch resp.GetDecision() {
	case localv1.AskEndResponse_SAVED:
		d.deliver(ctx, r, saved)
		return true
	case localv1.AskEndResponse_WAIT:
	default:
		return false
	}
	if d.begin(r.ID) {
		slog.Info("a signal waits until the pod is saved", "container", r.ID, "signal", signal)
		go d.deliverLater(context.WithoutCancel(ctx), r, limitOf(resp), send, saved)
	}
	return true
}

// deliverLater asks the agent until the pod is saved, or the signal may be delivered.
func (d *deferredSignals) deliverLater(ctx context.Context, r *task.KillRequest, limit time.Duration,
	send, saved func(context.Context, *task.KillRequest) error,
) {
	defer d.end(r.ID)
	err := d.awaitSaved(ctx, limit)
	if err == nil {
		slog.Info("the container's pod is saved", "container", r.ID)
		send = saved
	} else {
		slog.Warn("the container gets its signal: its pod was not saved", "container", r.ID, "error", err)
	}
	d.deliver(ctx, r, send)
}

// deliver sends a signal, if there is a way that it is to go.
func (d *deferredSignals) deliver(ctx context.Context, r *task.KillRequest,
	send func(context.Context, *task.KillRequest) error,
) {
	if send == nil {
		return
	}
	if err := send(ctx, r); err != nil {
		slog.Warn("send a signal to a container", "container", r.ID, "signal", unix.Signal(r.Signal), "error", err)
	}
}

// awaitSaved waits until the pod is saved. The error says why it will not be.
func (d *deferredSignals) awaitSaved(ctx context.Context, limit time.Duration) error {
	heard := time.Now()
	for end := heard.Add(limit); time.Now().Before(end); {
		resp, err := d.agent.askEnd(ctx, d.pod)
		if err != nil && time.Since(heard) > silentWait {
			return err
		}
		if err != nil {
			time.Sleep(retryPause)
			continue
		}
		heard = time.Now()
		switch resp.GetDecision() {
		case localv1.AskEndResponse_SAVED:
			return nil
		case localv1.AskEndResponse_WAIT:
			if last := time.Now().Add(limitOf(resp)); last.After(end) { // the agent has learned how long it may take
				end = last
			}
		default:
			return fmt.Errorf("the agent's answer is %v", resp.GetDecision())
		}
	}
	return fmt.Errorf("not saved in time")
}

// limitOf returns how long the agent lets a signal wait.
func limitOf(resp *localv1.AskEndResponse) time.Duration {
	return min(max(resp.GetLimit().AsDuration(), 0), mostHeld)
}

// inCluster reports whether the node belongs to a cluster.
func (a agent) inCluster() bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(a.socket), clusterMarker))
	return err == nil
}

// askEnd asks whether a container of the pod may be told to end. An agent that has not answered within endWait is not
// waited for.
func (a agent) askEnd(ctx context.Context, p pod) (resp *localv1.AskEndResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	err = a.call(ctx, func(c localv1.ShimClient) (err error) {
		resp, err = c.AskEnd(ctx, &localv1.AskEndRequest{SandboxId: p.sandbox, Annotations: p.annotations})
		return err
	})
	return resp, err
}
