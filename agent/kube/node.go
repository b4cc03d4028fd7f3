package kube

import (
	"context"

	"diapause.dev/agent"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/idle"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/ready"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	shimsleep "diapause.dev/runsc/sleep"
	"diapause.dev/storage"
)

// Node is what this package needs of the agent. agent.Node implements it.
type Node interface {
	// Checkpoint saves a pod. An error of kind errkind.ErrNotReplicated means that the snapshot is safe on this node, and
	// that replication goes on.
	Checkpoint(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
	// Sleep saves a pod and ends its sandbox. The pod stays.
	Sleep(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
	// Wake wakes a pod that sleeps.
	Wake(ctx context.Context, target, cause string) (sleep.Woken, error)
	// AsleepPod returns the mark of the pod with that UID. ok is false if it does not sleep.
	AsleepPod(uid string) (m shimsleep.Mark, ok bool)
	// Needed returns the pod that sleeps on the snapshot with that UID, or "".
	Needed(key snapshot.Key, uid string) (pod string)
	// EndedAsleep returns the pod that slept on the snapshot with that UID, and has had no sandbox since. ok is false if
	// there is none. It is remembered until ForgetAsleep is called, for an hour at most.
	EndedAsleep(ctx context.Context, key snapshot.Key, uid string) (pod snapshot.PodRef, ok bool, err error)
	ForgetAsleep(pod snapshot.PodRef) error
	// Waiting returns what the wake of the pod with that UID waits for. ok is false if it does not wait.
	Waiting(uid string) (why string, ok bool)
	// WishReady notes whether the pod with that UID is to be ready when it sleeps.
	WishReady(uid string, w ready.Wish)
	// WishesKnown says that WishReady was called for all pods for which it has to be. Until then no pod is made ready.
	WishesKnown()
	// Unwoken returns why the pod with that UID, which sleeps, could not be woken. ok is false if that was not tried.
	Unwoken(uid string) (why string, ok bool)
	// Gauges returns what tells whether pods are used.
	Gauges() idle.Meter
	// Requests returns the checkpoints in the journal, oldest first.
	Requests() ([]journal.Request, error)
	// Remove removes a snapshot from this node, from stores, or from both.
	Remove(ctx context.Context, r snapshots.Removal) error
	// Detach has the snapshot with that UID stay on this node, which then stores nothing more of it elsewhere.
	Detach(ctx context.Context, key snapshot.Key, uid string) error
	// HasLocal reports whether a snapshot can be restored on this node without a store.
	HasLocal(ctx context.Context, key snapshot.Key) (bool, error)
	// Manifest returns a snapshot's manifest, from this node or from the store at location.
	Manifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	// TrustedManifest is Manifest, and an error of kind storage.ErrUntrusted if this node may not restore the snapshot
	// because of its signature.
	TrustedManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	// Stored calls fn for each snapshot in the store at location.
	Stored(ctx context.Context, location string, fn func(storage.Listed) error) error
	// StoredManifest returns a snapshot's manifest from the store at location.
	StoredManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	// SweepStore removes from the store at location what no snapshot there names.
	SweepStore(ctx context.Context, location string) (storage.SweepResult, error)
	// OwnDisk reports whether the store at location is visible to this node only.
	OwnDisk(location string) bool
	// Facts returns what this node offers to a restore.
	Facts(ctx context.Context) (snapshot.Facts, error)
}

var _ Node = agent.Node{}
