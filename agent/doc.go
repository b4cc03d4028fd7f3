// Package agent is the daemon of a node. It creates the parts that do the work, connects them, and runs them:
//
//   - journal: checkpoint requests, as the next agent must know them
//   - snapshots: which snapshots there are and where; replication; the node's disk as a cache
//   - checkpoint: the life of a checkpoint, and recovery after a crash
//   - restore: the life of a restore, and the bytes that its sandbox reads
//   - local: the services for operators and for shims, on a socket of this node
//   - kube: the cluster, if there is one. The other parts get what they ask it, and it gets them
//
// An agent may be killed at any moment. The journal has the work that then remains. checkpoint.Recover does this work
// before the next agent answers the local service. Sidecars are served before: a sandbox may be waiting for its memory.
package agent
