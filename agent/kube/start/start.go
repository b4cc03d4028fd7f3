// Package start does the cluster's part in the start of pods on this node: it chooses the snapshot that a new pod is
// restored from, and reports how the restore went.
package start

import (
	"context"
	"log/slog"
	"time"

	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/api/snapshot"
)

// Config is what Starts work with.
type Config struct {
	Objects  *objects.Objects
	Node     Node
	NodeName string
	Store    string           // location of the agent's own store
	Names    *names.Clock     // of this node's snapshots
	Now      func() time.Time // this node's clock
	Logger   *slog.Logger
}

// Node is what the start of a pod needs of the agent. The methods are those of kube.Node.
type Node interface {
	stored
	Facts(ctx context.Context) (snapshot.Facts, error)
}

// Starts decides and reports on the starts of this node's pods. Its methods may be called concurrently.
type Starts struct {
	objects  *objects.Objects
	node     Node
	nodeName string
	names    *names.Clock
	now      func() time.Time // the API server's clock, if it is known
	attempts *attempts

	finder   *finder
	checker  *checker
	reporter *reporter
}

// New returns the starts of a node. SendReports must run for their reports.
func New(c Config) *Starts {
	attempts := newAttempts()
	now := func() time.Time { return timeNow(c.Objects.Clock, c.Now) }
	reporter := &reporter{
		objects: c.Objects, now: now, attempts: attempts, reports: make(chan report, maxReports), turns: newTurns(),
		log: c.Logger,
	}
	return &Starts{
		objects: c.Objects, node: c.Node, nodeName: c.NodeName, names: c.Names, now: now, attempts: attempts,
		finder: &finder{
			objects: c.Objects, heritage: &heritage{objects: c.Objects, log: c.Logger}, startsAnew: reporter.startsAnew,
		},
		checker:  &checker{objects: c.Objects, node: c.Node, nodeName: c.NodeName, store: c.Store},
		reporter: reporter,
	}
}

// timeNow returns the API server's time, or this node's if that is not known.
func timeNow(clock *objects.Clock, local func() time.Time) time.Time {
	if now, err := clock.Now(); err == nil {
		return now
	}
	return local()
}

// Restored implements agent.Cluster.
func (st *Starts) Restored(ctx context.Context, ref snapshot.PodRef, key snapshot.Key) error {
	return st.reporter.restored(ctx, ref, key)
}

// NotRestored implements agent.Cluster.
func (st *Starts) NotRestored(ctx context.Context, ref snapshot.PodRef, key snapshot.Key, failure error) {
	st.reporter.notRestored(ctx, ref, key, failure)
}

// SendReports writes what could not be written at once, and the times at which snapshots were used, until ctx is
// done.
func (st *Starts) SendReports(ctx context.Context) { st.reporter.run(ctx) }
