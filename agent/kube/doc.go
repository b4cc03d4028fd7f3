// Package kube is the cluster's side of Diapause, for two programs. It wires its parts; the parts do the work.
//
// A node's agent and its cluster need each other: the agent asks the cluster about pods and reports to it, and the
// cluster has the agent save, wake and restore pods. So a Connection is made first. Its Services, which need nothing of
// the agent, go into the agent's parts. The Cluster is made last, from the Connection and these parts, and drives them
// from the objects of podsnapshot.gke.io/v1:
//
//   - Package request: checkpoints that triggers and pod annotations ask for, and PodSnapshots according to the agent's
//     journal.
//   - Package start: the choice of snapshots for new pods, and reports of how the restore went.
//
// A Controller does for all nodes what none of them may do. Of several controllers one works, the holder of the Lease:
//
//   - Package duty: retention, deletion if the origin node does not do it, statuses of policies and storage configs,
//     triggers that no node answers. It confirms that the pod of a PodSnapshot was on the node that says so, by what
//     package sightings has seen.
//
// Both remove what nothing needs any more, by package sweep: the controller from the stores that all nodes see, an
// agent from those that only its node sees. Both remove the data of deleted PodSnapshots, by package removal.
//
// Package rules decides what to do, package objects reads and writes the cluster's objects.
//
// Every step can be repeated. Reconcilers look at the objects, at the agent's journal and at the ledger, and do what
// is missing. The ledger keeps across restarts what the objects and the journal do not. A snapshot's name is derived
// from the object that asked for it, so that no request ever makes two snapshots.
package kube
