package kube

import (
	"context"

	"diapause.dev/agent"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Node is what is asked of the agent. *agent.Agent is one.
type Node interface {
	// Checkpoint saves a pod. Errors of kind errkind.ErrNotReplicated mean that the snapshot is safe
	// on this node and that replication goes on.
	Checkpoint(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
	// Requests returns the checkpoints that the journal remembers, oldest first.
	Requests() ([]journal.Request, error)
	// Remove removes the snapshot of that UID from this node and from the store at a location; one of an empty UID is
	// whichever has the key.
	Remove(ctx context.Context, key snapshot.Key, uid, location string) error
	// Forget removes the snapshot of that UID from this node only.
	Forget(ctx context.Context, key snapshot.Key, uid string) error
	// HasLocal reports whether a snapshot is restorable on this node without a store.
	HasLocal(ctx context.Context, key snapshot.Key) (bool, error)
	// ProbeStore returns why the store at a location does not answer, or nil.
	ProbeStore(ctx context.Context, location string) error
	// Manifest returns a snapshot's manifest, from this node or the store at a location.
	Manifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	// Stored calls fn for each snapshot in the store at a location.
	Stored(ctx context.Context, location string, fn func(storage.Entry) error) error
	// StoredManifest returns a snapshot's manifest as the store at a location has it.
	StoredManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	// RemoveStored removes a snapshot from the store at a location if it is the one of that UID.
	RemoveStored(ctx context.Context, key snapshot.Key, uid, location string) error
	// SweepStore removes from the store at a location what no snapshot there names.
	SweepStore(ctx context.Context, location string) (storage.SweepResult, error)
	// OwnDisk reports whether no other node sees the store at a location.
	OwnDisk(location string) bool
	// Facts returns what this node offers to a restore.
	Facts(ctx context.Context) (snapshot.Facts, error)
}

var _ Node = agent.Node{}

var _ agent.Cluster = (*Cluster)(nil)
