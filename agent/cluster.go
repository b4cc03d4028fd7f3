package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Cluster is what an agent asks and tells the cluster that its node belongs to. Its methods are
// called concurrently.
type Cluster interface {
	// Choose decides for a pod whose sandbox is being created, AnnotationRestoreFrom included. An error says why a restore that was
	// wanted is refused; the choice's Fail counts all the same.
	Choose(ctx context.Context, pod PodRef) (Choice, error)
	// Describe returns what a snapshot of a pod carries and where it is stored, through whichever
	// door it was asked for. An error refuses the checkpoint.
	Describe(ctx context.Context, pod PodRef) (Description, error)
	// Restored is told how the restore of a pod went: err is nil once all its containers have been
	// started, and the runtime hears of the last only after Restored has returned or ctx is done.
	Restored(ctx context.Context, pod PodRef, key snapshot.Key, err error)
	// Unsaved is told why a pod was not saved whose own workload had begun that. It must not block.
	Unsaved(pod PodRef, err error)
	// Stores returns the locations of the stores that the cluster names.
	Stores(ctx context.Context) ([]string, error)
	// Remove deletes what the cluster has of a snapshot, and returns once all that is stored of it is
	// gone. False: the cluster does not know it.
	Remove(ctx context.Context, key snapshot.Key) (known bool, err error)
	// Changed is told of the steps of every request, in order. It must not block.
	Changed(r Request)
}

// PodRef names a pod as the annotations of its sandbox do.
type PodRef struct{ Namespace, Name, UID string }

// String returns "namespace/name".
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// Choice is what becomes of a pod whose sandbox is being created.
type Choice struct {
	Snapshot snapshot.Key // zero: an ordinary start
	Store    string       // the location of its store, as Config.Store has it; empty: the agent's own
	Fail     bool         // a pod that cannot be restored is refused instead of started anew
	// Init are the names of containers that have ended in the snapshot: they are not run again.
	Init []string
	// Containers is how many of the pod's containers start if only root file systems are restored:
	// with the last of them the pod is restored. 0: as many as the snapshot was taken of.
	Containers int
}

// Description is what a cluster knows of a pod that is checkpointed.
type Description struct {
	Cluster        string // its identity, as snapshots bear it; empty: not known
	ServiceAccount string
	Group          map[string]string
	SpecHash       string
	Store          string // location; empty: the agent's own
	// Scope is how much of the pod its snapshots keep, unless less is asked for.
	Scope snapshot.Scope
	// Stop ends a sandbox whose own workload has had it saved, once its snapshot is safe.
	Stop bool
}

// Request is a checkpoint as the agent's journal knows it.
type Request struct {
	ID          string
	SnapshotUID string
	Key         snapshot.Key
	Scope       snapshot.Scope
	Pod         PodRef
	SandboxID   string
	Stage       Stage
	Error       string // why it failed
	Store       string // location; empty: the agent's own
	Created     time.Time
}

// Join makes the agent one of a cluster. It is called before Run, at most once.
func (a *Agent) Join(c Cluster) { a.cluster = c }

// clusterMarker is the name of the file beside the socket that tells the shim to wait for an agent that
// is being restarted or replaced: the cluster may have a snapshot for any pod.
const clusterMarker = "cluster"

// mark says on the node whether the agent is one of a cluster.
func (a *Agent) mark() error {
	path := filepath.Join(filepath.Dir(a.cfg.Socket), clusterMarker)
	if a.cluster == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("agent: %w", err)
		}
		return nil
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// changed tells the cluster of a step.
func (a *Agent) changed(r *record) {
	if a.cluster != nil {
		a.cluster.Changed(r.request())
	}
}

// Requests returns all checkpoints that the journal remembers, oldest first.
func (a *Agent) Requests() ([]Request, error) {
	recs, err := a.journal.records(a.log)
	if err != nil {
		return nil, err
	}
	out := make([]Request, len(recs))
	for i, r := range recs {
		out[i] = r.request()
	}
	return out, nil
}

// HasLocal reports whether a snapshot is restorable on this node without a store.
func (a *Agent) HasLocal(ctx context.Context, k snapshot.Key) (bool, error) {
	return a.spool.Has(ctx, k)
}

// Manifest returns the manifest of a snapshot, from the spool or the store at the given location.
func (a *Agent) Manifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	m, _, err := a.restores.manifest(ctx, k, location)
	return m, err
}

// Facts returns what this node offers to a restore.
func (a *Agent) Facts(ctx context.Context) (snapshot.Facts, error) { return a.node.get(ctx) }
