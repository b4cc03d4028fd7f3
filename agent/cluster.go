package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/idle"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/local"
	"diapause.dev/agent/ready"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
	shimsleep "diapause.dev/runsc/sleep"
)

// Cluster is what an agent needs of the cluster that its node belongs to, and what it reports to it. Its methods are
// called concurrently.
type Cluster interface {
	local.Cluster
	restore.Cluster
	checkpoint.Cluster
	snapshots.Cluster
	sleep.Cluster
	admission.Cluster
	lives.Cluster
	// Changed reports each step of every request, in order. It must not block.
	Changed(r journal.Request)
}

// Join makes the agent a member of a cluster. It must be called before Run, and at most once.
func (a *Agent) Join(c Cluster) {
	a.cluster = c
	a.stores.Join(c)
	a.reminders.AwaitCluster()
	a.restores.Join(c)
	a.checkpoints.Join(c)
	a.sleeps.Join(c)
	a.lives.Join(c)
	a.admission.Join(c)
	a.ready.AwaitWishes()
}

// Metrics returns where a cluster adds its metrics to the agent's.
func (a *Agent) Metrics() prometheus.Registerer { return a.metrics.registry }

// Node is the agent's node as the cluster sees it.
type Node struct {
	*snapshots.Catalog
	agent *Agent
}

// Node returns the agent's node.
func (a *Agent) Node() Node { return Node{Catalog: a.catalog, agent: a} }

// Checkpoint saves a pod: see checkpoint.Checkpoints.
func (n Node) Checkpoint(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error) {
	return n.agent.checkpoints.Checkpoint(ctx, life, o)
}

// Sleep puts a pod to sleep: see sleep.Sleeps.
func (n Node) Sleep(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error) {
	return n.agent.sleeps.Sleep(ctx, life, o)
}

// Wake wakes a pod: see sleep.Sleeps.
func (n Node) Wake(ctx context.Context, target, cause string) (sleep.Woken, error) {
	return n.agent.sleeps.Wake(ctx, target, cause)
}

// WishReady notes whether a pod is to be ready when it sleeps: see ready.Pool.
func (n Node) WishReady(uid string, w ready.Wish) { n.agent.ready.Wish(uid, w) }

// WishesKnown says that WishReady was called for all pods: see ready.Pool.
func (n Node) WishesKnown() { n.agent.ready.WishesKnown() }

// AsleepPod returns the mark of a pod that sleeps: see sleep.Sleeps.
func (n Node) AsleepPod(uid string) (m shimsleep.Mark, ok bool) { return n.agent.sleeps.AsleepPod(uid) }

// Needed returns the pod that sleeps on a snapshot: see restore.Wakes.
func (n Node) Needed(key snapshot.Key, uid string) (pod string) {
	return n.agent.wakes.Needed(key, uid)
}

// EndedAsleep returns the pod that slept on a snapshot and has ended since: see asleep.Reminders.
func (n Node) EndedAsleep(ctx context.Context, key snapshot.Key, uid string) (snapshot.PodRef, bool, error) {
	return n.agent.reminders.EndedAsleep(ctx, key, uid)
}

// ForgetAsleep forgets that a pod slept.
func (n Node) ForgetAsleep(pod snapshot.PodRef) error { return n.agent.reminders.Forget(pod) }

// Waiting returns what the wake of a pod waits for: see admission.Queue.
func (n Node) Waiting(uid string) (why string, ok bool) { return n.agent.admission.Reason(uid) }

// Unwoken returns why a pod that sleeps could not be woken: see sleep.Sleeps.
func (n Node) Unwoken(uid string) (why string, ok bool) { return n.agent.sleeps.Unwoken(uid) }

// Gauges returns what tells whether pods are used.
func (n Node) Gauges() idle.Meter {
	return idle.Kernel{Runtime: n.agent.cri, Used: n.agent.usedDir(), Busy: func(sandbox string) bool {
		_, _, loading := n.agent.restores.Loading(sandbox)
		return loading || n.agent.sandboxes.Locked(sandbox)
	}}
}

// Requests returns all checkpoints that the journal remembers and that have a name, oldest first.
func (n Node) Requests() (out []journal.Request, err error) {
	for _, r := range n.agent.journal.Where((*journal.Record).Named) {
		out = append(out, n.agent.request(r))
	}
	return out, nil
}

// Facts returns what this node offers to a restore.
func (n Node) Facts(ctx context.Context) (snapshot.Facts, error) { return n.agent.node.Facts(ctx) }

// clusterMarker is the name of a file beside the socket. It tells the shim to wait for an agent that is being restarted
// or replaced: the cluster may have a snapshot for any pod.
const clusterMarker = "cluster"

// mark creates or removes the file that says that the agent belongs to a cluster.
func (a *Agent) mark() error {
	path := filepath.Join(filepath.Dir(a.cfg.Socket), clusterMarker)
	if a.cluster == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("agent: %w", err)
		}
		return nil
	}
	if err := durable.Replace(path, nil); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// changed reports a step of a request to the cluster, unless the request has no name yet, and to the sleeps.
func (a *Agent) changed(r *journal.Record) {
	a.sleeps.Changed(r)
	if a.cluster != nil && r.Named() {
		a.cluster.Changed(a.request(r))
	}
}

// request returns a record as a journal.Request, with the reason for which it waits.
func (a *Agent) request(r *journal.Record) journal.Request {
	q := r.Request()
	q.Waiting = a.backlog.Reason(r.ID)
	return q
}
