// Package request serves the requests for checkpoints of this node's pods: those of triggers, those in annotations of
// pods, and what comes of checkpoints that somebody else asked for. It makes the PodSnapshots, writes their statuses
// and the answers, and does this node's part in deletions.
//
// Every step can be repeated. Reconcilers look at the objects, at what the agent's journal has reported and at the
// ledger, and do what is missing. A checkpoint itself runs in a goroutine, as a job.
//
// An asked is the object that asks, while a reconciler serves it: it reads the request and writes the answer. Package
// record has the names of those who ask, and what is known of their checkpoints.
//
// Each piece of Requests has one subject. The server serves what is asked, the captures carry it out, the publisher
// creates the PodSnapshot, the reporter writes its status, and the deletions end it. They share the records, and the
// waiters, through which they requeue each other's objects.
package request

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/ending"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
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
	checkpointer
	publishing
	reporting
	deleting
	ending.Sleepers
	Requests() ([]journal.Request, error)
	Remove(ctx context.Context, key snapshot.Key, uid, location string) error
	AsleepPod(uid string) (m sleep.Mark, ok bool)
}

// Requests are the requests for checkpoints on this node. Its methods may be called concurrently.
type Requests struct {
	objects  *objects.Objects
	node     Node
	nodeName string
	names    *names.Clock
	records  *record.Records
	work     *control.Background
	waiters  *waiters

	server        *server
	publisher     *publisher
	reporter      *reporter
	sleeps        *ending.Sleeps
	deletions     *deletions
	copies        *copies
	remover       *remover
	confirmations *confirmations
	descriptions  *descriptions
	endings       *ending.Endings
}

// New opens the ledger. It sends nothing to the API server.
func New(c Config) (*Requests, error) {
	records, err := record.Open(filepath.Join(c.StateDir, "kube"), c.Logger)
	if err != nil {
		return nil, err
	}
	o, work := c.Objects, new(control.Background)
	w := &waiters{objects: o, records: records, work: work, log: c.Logger}
	plans := &plans{objects: o, node: c.Node}
	captures := &captures{
		node: c.Node, objects: o, names: c.Names, records: records, waiters: w, work: work, log: c.Logger,
	}
	sleeps := ending.NewSleeps(o, c.Node, records.Ledger, w.snapshots.Kick, c.Logger)
	return &Requests{
		objects: o, node: c.Node, nodeName: c.NodeName, names: c.Names, records: records, work: work, waiters: w,
		server: &server{
			objects: o, nodeName: c.NodeName, records: records, waiters: w, plans: plans, captures: captures,
			outcomes: &outcomes{objects: o, node: c.Node, records: records, waiters: w},
		},
		publisher: &publisher{
			objects: o, node: c.Node, nodeName: c.NodeName, names: c.Names, records: records, waiters: w, plans: plans,
			arrivals: newArrivals(), log: c.Logger,
		},
		reporter: &reporter{
			objects: o, node: c.Node, nodeName: c.NodeName, store: c.Store, records: records, waiters: w,
		},
		sleeps: sleeps,
		deletions: &deletions{
			objects: o, node: c.Node, nodeName: c.NodeName, store: c.Store, records: records, waiters: w,
			removals: removal.New(o, c.Node.Remove, c.Logger), remembers: c.Remembers, log: c.Logger,
		},
		copies:        newCopies(c.Node),
		remover:       &remover{objects: o, nodeName: c.NodeName, log: c.Logger},
		confirmations: &confirmations{objects: o, records: records},
		descriptions:  &descriptions{objects: o, jobs: records.Jobs, plans: plans},
		endings: ending.New(ending.Config{
			Objects: o, Asleep: c.Node.AsleepPod, Plan: plans.termination, Capture: captures.ending, Sleeps: sleeps, Work: work,
			Logger: c.Logger,
		}),
	}, nil
}

// Begin takes over the requests in the agent's journal. Checkpoints that are requested from now on end with life. It
// must be called before the controllers start, and once.
func (rs *Requests) Begin(life context.Context) error {
	rs.work.Life = life
	all, err := rs.node.Requests()
	if err != nil {
		return fmt.Errorf("requests in the journal: %w", err)
	}
	rs.records.Reported.Load(all)
	for _, q := range all {
		rs.names.Saw(q.Key.Name, q.Created)
	}
	for _, k := range append(rs.records.Reported.Keys(), rs.records.Ledger.Keys()...) {
		rs.waiters.snapshots.Kick(objects.Named(k))
	}
	return nil
}

// Wait waits until all checkpoints have ended that were begun. No controller may run any more.
func (rs *Requests) Wait() {
	rs.endings.Close()
	rs.work.Wait()
}

// Changed implements agent.Cluster.
func (rs *Requests) Changed(q journal.Request) {
	rs.records.Reported.Put(q)
	rs.waiters.progressed(q.Key)
	if record.Spooled(q) {
		rs.waiters.captured(q.Key)
	}
}

// Knows reports whether this node still has work to do for a snapshot.
func (rs *Requests) Knows(k snapshot.Key) bool { return rs.records.Knows(k) }

// Describe implements agent.Cluster.
func (rs *Requests) Describe(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	return rs.descriptions.pod(ctx, ref)
}

// DescribeWorkload implements agent.Cluster.
func (rs *Requests) DescribeWorkload(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	return rs.descriptions.workload(ctx, ref)
}

// Unsaved implements agent.Cluster. It makes an event on the pod that says why.
func (rs *Requests) Unsaved(ref snapshot.PodRef, err error) {
	rs.objects.Events.Pod(ref, snapshot.Key{}, notice.NotCheckpointed, err)
}

// Confirmed implements agent.Cluster.
func (rs *Requests) Confirmed(ctx context.Context, ref snapshot.PodRef, k snapshot.Key) error {
	return rs.confirmations.await(ctx, ref, k)
}

// MayEnd implements agent.Cluster.
func (rs *Requests) MayEnd(ctx context.Context, ref snapshot.PodRef) (wait time.Duration, saved bool) {
	return rs.endings.MayEnd(ctx, ref)
}

// SleepChanged looks again at the PodSnapshots of a pod that has fallen asleep or woken.
func (rs *Requests) SleepChanged(pod snapshot.PodRef) { rs.sleeps.Changed(pod) }

// Remove implements agent.Cluster. It asks the controller to delete the PodSnapshot. The deletion then goes on even if
// this agent ends.
func (rs *Requests) Remove(ctx context.Context, k snapshot.Key) (known bool, err error) {
	return rs.remover.remove(ctx, k)
}
