// Package kube is the agent's side of Kubernetes. It implements agent.Cluster, and drives an agent from
// the objects of podsnapshot.gke.io/v1. Package rules decides what to do; this package watches objects
// and writes answers.
//
//   - Node duties, of every agent: checkpoints that triggers and pod annotations ask for, PodSnapshots
//     according to the agent's journal, the choice of snapshots for new pods ([Cluster.Choose]), and
//     reports of how the restore went ([Cluster.Restored]).
//   - Cluster duties, of the one agent that holds a Lease: retention, deletion if the origin node does
//     not do it, statuses of policies and storage configs, triggers that no node answers, and removing
//     from the stores what no PodSnapshot names.
//
// Every step can be repeated. Reconcilers look at the objects, at the agent's journal and at the ledger,
// and do what is missing. The ledger keeps across restarts what the objects and the journal do not. A
// checkpoint itself runs in a goroutine of the [Cluster]. Its snapshot's name is derived from the object
// that asked for it, so that no request ever makes two snapshots.
package kube
