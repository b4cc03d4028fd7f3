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
	"diapause.dev/storage"
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
	Facts(ctx context.Context) (snapshot.Facts, error)
	HasLocal(ctx context.Context, key snapshot.Key) (bool, error)
	TrustedManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
}

// Starts decides and reports on the starts of this node's pods. Its methods may be called concurrently.
type Starts struct {
	Config
	log      *slog.Logger
	attempts *attempts
	reports  chan report
	turns    *turns
}

// New returns the starts of a node. SendReports must run for their reports.
func New(c Config) *Starts {
	return &Starts{
		Config: c, log: c.Logger, attempts: newAttempts(), reports: make(chan report, maxReports), turns: newTurns(),
	}
}
