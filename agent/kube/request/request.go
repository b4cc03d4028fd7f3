// Package request serves the requests for checkpoints of this node's pods: those of triggers, those in annotations of
// pods, and what comes of checkpoints that somebody else asked for. It makes the PodSnapshots, writes their statuses
// and the answers, and does this node's part in deletions.
//
// Every step can be repeated. Reconcilers look at the objects, at what the agent's journal has reported and at the
// ledger, and do what is missing. A checkpoint itself runs in a goroutine, as a job.
//
// Four types say who asks:
//
//   - An asked is the object while a reconciler serves it: it reads the request and writes the answer.
//   - A requester is the name of that object: a trigger or a pod, to be requeued. A pod may ask again under this name.
//   - An asker identifies one request of the object. It stays the same when the request is retried, and is new when the
//     pod's annotation gets a new value.
//   - A mark is what the name of a snapshot says about its asker. By its mark a snapshot is found again after a crash.
package request

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
	"diapause.dev/storage"
)

// Config is what Requests work with.
type Config struct {
	Objects  *objects.Objects
	Node     Node
	NodeName string
	Names    *names.Clock // gives snapshots their names
	Store    string       // location of the agent's own store
	StateDir string       // for the ledger; must survive a reboot
	// Remembers returns an error unless the cluster remembers what this node has seen of it: see rollback.Watcher.
	Remembers func(context.Context) error
	Logger    *slog.Logger
}

// Node is what the requests need of the agent. The methods are those of kube.Node.
type Node interface {
	Checkpoint(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
	Requests() ([]journal.Request, error)
	Remove(ctx context.Context, key snapshot.Key, uid, location string) error
	Withdraw(ctx context.Context, key snapshot.Key, uid string) error
	Detach(ctx context.Context, key snapshot.Key, uid string) error
	Forget(ctx context.Context, key snapshot.Key, uid string) error
	HasLocal(ctx context.Context, key snapshot.Key) (bool, error)
	AsleepPod(uid string) (m sleep.Mark, ok bool)
	Needed(key snapshot.Key, uid string) (pod string)
	EndedAsleep(ctx context.Context, key snapshot.Key, uid string) (pod snapshot.PodRef, ok bool, err error)
	ForgetAsleep(pod snapshot.PodRef) error
	Manifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	StoredManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
	OwnDisk(location string) bool
	Facts(ctx context.Context) (snapshot.Facts, error)
}

// Requests are the requests for checkpoints on this node. Its methods may be called concurrently.
type Requests struct {
	Config
	log      *slog.Logger
	arrivals *arrivals
	ledger   *ledger
	reported *reported
	jobs     *jobs
	copies   *copies
	began    time.Time
	removals *removal.Removals

	terminations *terminations

	triggers, pods, snapshots control.Queue   // of the controllers of these objects
	life                      context.Context // of checkpoints; set by Begin
	work                      sync.WaitGroup  // the jobs
}

// New opens the ledger. It sends nothing to the API server.
func New(c Config) (*Requests, error) {
	l, err := openLedger(filepath.Join(c.StateDir, "kube"), c.Logger)
	if err != nil {
		return nil, err
	}
	return &Requests{
		Config: c, log: c.Logger, arrivals: newArrivals(), ledger: l, reported: newReported(), jobs: newJobs(),
		copies: newCopies(), began: time.Now(),
		removals: removal.New(c.Objects, c.Node.Remove, c.Logger), terminations: newTerminations(),
	}, nil
}

// Begin takes over the requests in the agent's journal. Checkpoints that are requested from now on end with life. It
// must be called before the controllers start, and once.
func (rs *Requests) Begin(life context.Context) error {
	rs.life = life
	all, err := rs.Node.Requests()
	if err != nil {
		return fmt.Errorf("requests in the journal: %w", err)
	}
	rs.reported.load(all)
	for _, q := range all {
		rs.Names.Saw(q.Key.Name, q.Created)
	}
	for _, k := range append(rs.reported.keys(), rs.ledger.keys()...) {
		rs.snapshots.Kick(objects.Named(k))
	}
	return nil
}

// Wait waits until all checkpoints have ended that were begun. No controller may run any more.
func (rs *Requests) Wait() {
	rs.terminations.close()
	rs.work.Wait()
}

// Changed implements agent.Cluster.
func (rs *Requests) Changed(q journal.Request) {
	rs.reported.put(q)
	rs.progressed(q.Key)
	if spooled(q) {
		rs.captured(q.Key)
	}
}

// Knows reports whether this node still has work to do for a snapshot.
func (rs *Requests) Knows(k snapshot.Key) bool {
	_, working := rs.jobs.state(k)
	_, reported := rs.reported.get(k)
	_, entered := rs.ledger.get(k)
	return working || reported || entered
}
