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
	Reporter *Reporter // of this node's restores
	// Snapshots are those of this node and of the stores.
	Snapshots Snapshots
	Facts     func(context.Context) (snapshot.Facts, error) // what the node offers to a restore
	NodeName  string
	Store     string       // location of the agent's own store
	Names     *names.Clock // of this node's snapshots
	Logger    *slog.Logger
}

// Starts decides on the starts of this node's pods. Its methods may be called concurrently.
type Starts struct {
	objects  *objects.Objects
	facts    func(context.Context) (snapshot.Facts, error)
	nodeName string
	names    *names.Clock
	now      func() time.Time // the API server's clock, if it is known
	attempts *attempts

	finder  *finder
	checker *checker
}

// New returns the starts of a node.
func New(c Config) *Starts {
	rp := c.Reporter
	return &Starts{
		objects: c.Objects, facts: c.Facts, nodeName: c.NodeName, names: c.Names, now: rp.now, attempts: rp.attempts,
		finder: &finder{
			objects: c.Objects, heritage: &heritage{objects: c.Objects, log: c.Logger}, startsAnew: rp.startsAnew,
		},
		checker: &checker{objects: c.Objects, node: c.Snapshots, nodeName: c.NodeName, store: c.Store},
	}
}
