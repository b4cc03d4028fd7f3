package kube

import (
	"context"

	"diapause.dev/agent/idle"
	"diapause.dev/agent/kube/ending"
	"diapause.dev/agent/kube/request"
	"diapause.dev/agent/kube/rollback"
	"diapause.dev/agent/kube/sleeppolicy"
	"diapause.dev/agent/kube/slumber"
	"diapause.dev/agent/kube/start"
	"diapause.dev/agent/kube/sweep"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// Node are the parts of an agent that its cluster's side works with.
type Node struct {
	Checkpoints request.Checkpoints                           // *checkpoint.Checkpoints
	Snapshots   Snapshots                                     // *snapshots.Catalog
	Facts       func(context.Context) (snapshot.Facts, error) // what the node offers to a restore
	Needs       ending.Needing                                // *restore.Needs
	Ended       ending.Ended                                  // *asleep.Reminders
	Sleeps      slumber.Sleeps                                // *sleep.Sleeps
	Waker       slumber.Waker                                 // *sleep.Waker
	// Waiting returns what the wake of the pod with that UID waits for. Ok is false if it does not wait.
	Waiting  func(uid string) (why string, ok bool)
	Policies Policies // of the same connection
}

// Snapshots are the snapshots of the node and of the stores. *snapshots.Catalog implements it.
type Snapshots interface {
	request.Snapshots
	start.Snapshots
	sweep.Stores
}

// IdleNode are the parts of an agent that put its idle pods to sleep.
type IdleNode struct {
	Sleeps sleeppolicy.Sleeps                          // *sleep.Sleeps
	Asleep func(podUID string) (m sleep.Mark, ok bool) // returns the mark of a pod; ok is false if it does not sleep
	Ready  sleeppolicy.Ready                           // *ready.Demand
	Meter  idle.Meter                                  // tells whether pods are used
}

// Policies are the SleepPolicies as they concern a node. They implement admission.Cluster.
type Policies struct {
	*sleeppolicy.Policies
	*slumber.News
}

// Policies returns the policies of the cluster. They are made before the queue of wakes, for which they put pods to
// sleep.
func (c *Connection) Policies(n IdleNode) Policies {
	return Policies{sleeppolicy.New(sleeppolicy.Config{
		Objects: c.objects, Sleeps: n.Sleeps, Asleep: n.Asleep, Ready: n.Ready, Meter: n.Meter, Logger: c.log,
	}), c.news}
}

// Decisions are what a node's own services ask the cluster. They implement local.Cluster.
type Decisions struct {
	*start.Starts     // Choose, Again
	*start.Reporter   // Restored
	*request.Requests // MayEnd
	*request.Saves    // Confirmed
	*rollback.Watcher // NotSwept
}

// Decisions returns what the node's own services ask the cluster.
func (c *Cluster) Decisions() Decisions {
	return Decisions{c.starts, c.conn.reporter, c.requests, c.conn.saves, c.watcher}
}
