// Package kube is the agent's side of Kubernetes. It implements agent.Cluster, and drives an agent from the objects of
// podsnapshot.gke.io/v1. It wires its parts, and competes for the Lease; the parts do the work:
//
//   - Package request, on every node: checkpoints that triggers and pod annotations ask for, and PodSnapshots according
//     to the agent's journal.
//   - Package start, on every node: the choice of snapshots for new pods, and reports of how the restore went.
//   - Package duty, on the one node that holds the Lease: retention, deletion if the origin node does not do it,
//     statuses of policies and storage configs, triggers that no node answers, and removing from the stores what no
//     PodSnapshot names.
//
// Package rules decides what to do, package objects reads and writes the cluster's objects.
//
// Every step can be repeated. Reconcilers look at the objects, at the agent's journal and at the ledger, and do what
// is missing. The ledger keeps across restarts what the objects and the journal do not. A snapshot's name is derived
// from the object that asked for it, so that no request ever makes two snapshots.
package kube
