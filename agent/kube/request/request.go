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
// waiters, through which they requeue each other's objects. Reports, which have both, are there before the agent's
// parts: these write into them. So are Saves, which the agent asks about pods that it saves.
package request

import (
	"context"
	"log/slog"
	"time"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/ending"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// Config is what Requests work with.
type Config struct {
	Objects  *objects.Objects
	Reports  *Reports // of the node's agent
	Node     Node
	NodeName string
	Names    *names.Clock // gives snapshots their names
	Store    string       // location of the agent's own store
	// Remembers returns an error unless the cluster remembers what this node has seen of it: see rollback.Watcher.
	Remembers func(context.Context) error
	Logger    *slog.Logger
}

// Node are the parts of the agent that requests work with.
type Node struct {
	Checkpoints Checkpoints
	Snapshots   Snapshots
	Facts       func(context.Context) (snapshot.Facts, error) // what the node offers to a restore
	Needs       ending.Needing
	Ended       ending.Ended
	// Asleep returns the mark of the pod with that UID. Ok is false if it does not sleep.
	Asleep func(podUID string) (m sleep.Mark, ok bool)
}

// Snapshots are the snapshots of the node and of the stores. *snapshots.Catalog implements it.
type Snapshots interface {
	publishing
	reporting
	deleting
}

// Requests are the requests for checkpoints on this node. Its methods may be called concurrently.
type Requests struct {
	objects  *objects.Objects
	nodeName string
	records  *record.Records
	work     *control.Background
	waiters  *waiters

	server    *server
	publisher *publisher
	reporter  *reporter
	sleeps    *ending.Sleeps
	deletions *deletions
	copies    *copies
	endings   *ending.Endings
}

// New returns the requests of a node, which its controllers serve. It sends nothing to the API server.
func New(c Config) *Requests {
	o, records, work, w := c.Objects, c.Reports.records, c.Reports.work, c.Reports.waiters
	stored := c.Node.Snapshots
	plans := &plans{objects: o}
	captures := &captures{
		node: c.Node.Checkpoints, objects: o, names: c.Names, records: records, waiters: w, work: work, log: c.Logger,
	}
	sleeps := ending.NewSleeps(o, c.Node.Needs, c.Node.Ended, records.Ledger, c.Logger)
	return &Requests{
		objects: o, nodeName: c.NodeName, records: records, work: work, waiters: w,
		server: &server{
			objects: o, nodeName: c.NodeName, records: records, waiters: w, plans: plans, captures: captures,
			outcomes: &outcomes{objects: o, node: stored, records: records, waiters: w},
		},
		publisher: &publisher{
			objects: o, node: stored, facts: c.Node.Facts, nodeName: c.NodeName, names: c.Names, records: records,
			waiters: w, plans: plans, arrivals: newArrivals(), log: c.Logger,
		},
		reporter: &reporter{
			objects: o, node: stored, nodeName: c.NodeName, store: c.Store, records: records, waiters: w,
		},
		sleeps: sleeps,
		deletions: &deletions{
			objects: o, node: stored, needs: c.Node.Needs, nodeName: c.NodeName, store: c.Store, records: records,
			waiters: w, removals: removal.New(o, data(stored), c.Logger), remembers: c.Remembers, log: c.Logger,
		},
		copies: newCopies(stored),
		endings: ending.New(ending.Config{
			Objects: o, Asleep: c.Node.Asleep, Plan: plans.termination, Capture: captures.ending, Sleeps: sleeps, Work: work,
			Logger: c.Logger,
		}),
	}
}

// Wait waits until all checkpoints have ended that were begun. No controller may run any more.
func (rs *Requests) Wait() {
	rs.endings.Close()
	rs.work.Wait()
}

// MayEnd implements local.Cluster.
func (rs *Requests) MayEnd(ctx context.Context, ref snapshot.PodRef) (wait time.Duration, saved bool) {
	return rs.endings.MayEnd(ctx, ref)
}
