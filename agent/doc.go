// Package agent is the daemon of a node. It makes the parts of which the work is done, connects them, and runs them:
//
//   - journal: checkpoint requests, as the next agent must know them
//   - snapshots: which snapshots there are and where; replication; the node's disk as a cache
//   - checkpoint: the life of a checkpoint, and what it owes after a crash
//   - restore: the life of a restore, and the bytes that its sandbox reads
//   - local: the services for operators and for shims, on a socket of this node
//   - kube: the cluster, if there is one. It asks a Node, and implements Cluster
//
// An agent may be killed at any moment. What it owes afterwards is in the journal: checkpoint.Recover pays it before
// anything new is taken.
package agent
