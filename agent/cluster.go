package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"diapause.dev/agent/backlog"
	"diapause.dev/agent/idle"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/local"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc/durable"
)

// connect prepares the work in the cluster, if the node belongs to one. Without one, a.services has none, and each part
// that gets nil from it works without a cluster.
func (a *Agent) connect() (err error) {
	if a.cfg.Cluster == nil {
		return nil
	}
	c := *a.cfg.Cluster
	c.NodeName, c.Store, c.StateDir = a.cfg.Node, a.cfg.Store, a.cfg.StateDir
	c.Metrics, c.Logger = a.metrics.registry, a.log
	var earlier []journal.Request
	for _, r := range a.journal.Where((*journal.Record).Named) {
		earlier = append(earlier, request(r, a.backlog))
	}
	if a.conn, err = kube.Connect(c, earlier); err != nil {
		return err
	}
	a.services = a.conn.Services()
	return nil
}

// decisions returns what the local service asks the cluster, or nil if there is none.
func (a *Agent) decisions() local.Cluster {
	if a.cluster == nil {
		return nil
	}
	return a.cluster.Decisions()
}

// meter returns what tells whether pods are used.
func (a *Agent) meter() idle.Meter {
	return idle.Kernel{Runtime: a.cri, Used: a.usedDir(), Busy: func(sandbox string) bool {
		_, _, loading := a.restores.Loading(sandbox)
		return loading || a.sandboxes.Locked(sandbox)
	}}
}

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

// steps pass on the steps of all requests.
type steps struct {
	backlog   *backlog.Backlog
	collector *sleep.Collector
	cluster   func(journal.Request) // or nil
}

// changed reports a step of a request to the cluster, unless the request has no name yet, and to the collector.
func (s steps) changed(r *journal.Record) {
	s.collector.Changed(r)
	if s.cluster != nil && r.Named() {
		s.cluster(request(r, s.backlog))
	}
}

// request returns a record as a journal.Request, with the reason for which it waits.
func request(r *journal.Record, b *backlog.Backlog) journal.Request {
	q := r.Request()
	q.Waiting = b.Reason(r.ID)
	return q
}

// sleepers implements checkpoint.Sleeps.
type sleepers struct {
	waker *sleep.Waker
	wakes *restore.Wakes
}

// Asleep implements checkpoint.Sleeps.
func (s sleepers) Asleep(sandbox string) bool {
	_, ok := s.waker.Asleep(sandbox)
	return ok
}

// SleepsOn implements checkpoint.Sleeps.
func (s sleepers) SleepsOn(sandbox string) (id snapshots.ID, ok bool) {
	return s.wakes.SleepsOn(sandbox)
}

// Wake implements checkpoint.Sleeps.
func (s sleepers) Wake(ctx context.Context, sandbox string) error {
	_, err := s.waker.Wake(ctx, sandbox, "checkpoint")
	return err
}
