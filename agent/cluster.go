package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"diapause.dev/agent/durable"
	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Cluster is what an agent asks and tells the cluster that its node belongs to. Its methods are
// called concurrently.
type Cluster interface {
	// Choose decides for a pod whose sandbox is being created, AnnotationRestoreFrom included. An error says why a restore
	// that was wanted is refused; the choice's Fail counts all the same.
	Choose(ctx context.Context, pod snapshot.PodRef) (Choice, error)
	// Describe returns what a snapshot of a pod carries and where it is stored, through whichever
	// door it was asked for. An error refuses the checkpoint.
	Describe(ctx context.Context, pod snapshot.PodRef) (Description, error)
	// Name returns a name for a snapshot that is being taken and was given none.
	Name() string
	// Restored is told that a pod is restored: all its containers have been started. The runtime hears of the
	// last only after Restored has returned or ctx is done. After an error it must be told again.
	Restored(ctx context.Context, pod snapshot.PodRef, key snapshot.Key) error
	// NotRestored is told why a pod could not be restored.
	NotRestored(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error)
	// Unsaved is told why a pod was not saved whose own workload had begun that. It must not block.
	Unsaved(pod snapshot.PodRef, err error)
	// Stores returns the locations of the stores that the cluster names.
	Stores(ctx context.Context) ([]string, error)
	// Remove deletes what the cluster has of a snapshot, and returns once all that is stored of it is
	// gone. False: the cluster does not know it.
	Remove(ctx context.Context, key snapshot.Key) (known bool, err error)
	// Changed is told of the steps of every request, in order. It must not block.
	Changed(r journal.Request)
}

// Choice is what becomes of a pod whose sandbox is being created.
type Choice struct {
	Snapshot snapshot.Key // zero: an ordinary start
	// UID is that of the snapshot that was looked at: if another one has come to have its key, the
	// restore is refused (ErrReplaced). Empty: whichever has the key.
	UID   string
	Store string // the location of its store, as Config.Store has it; empty: the agent's own
	Fail  bool   // a pod that cannot be restored is refused instead of started anew
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
	if err := durable.Replace(path, nil); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// changed tells the cluster of a step. Of a request that never came to have a name there is nothing to tell.
func (a *Agent) changed(r *journal.Record) {
	if a.cluster != nil && r.Named() {
		a.cluster.Changed(a.request(r))
	}
}

// Requests returns all checkpoints that the journal remembers and that have a name, oldest first.
func (a *Agent) Requests() (out []journal.Request, err error) {
	for _, r := range a.journal.Where((*journal.Record).Named) {
		out = append(out, a.request(r))
	}
	return out, nil
}

// request returns a record as others see it.
func (a *Agent) request(r *journal.Record) journal.Request {
	q := r.Request()
	q.Waiting = a.lagging.reason(r.ID)
	return q
}

// HasLocal reports whether a snapshot is restorable on this node without a store: one that was found to be damaged
// is not.
func (a *Agent) HasLocal(ctx context.Context, k snapshot.Key) (bool, error) {
	if ok, err := a.spool.Has(ctx, k); !ok || err != nil {
		return false, err
	}
	reason, err := a.spool.Damaged(ctx, k)
	return err == nil && reason == "", err
}

// Manifest returns the manifest of a snapshot, from the spool or the store at the given location.
func (a *Agent) Manifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	h, err := a.restores.look(ctx, readerID{key: k}, location)
	return h.manifest, err
}

// Facts returns what this node offers to a restore.
func (a *Agent) Facts(ctx context.Context) (snapshot.Facts, error) { return a.node.get(ctx) }
