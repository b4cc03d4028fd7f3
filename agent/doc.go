// Package agent is the daemon of a node: it takes requests to checkpoint and to restore, sees them
// through, and answers for them after a crash.
//
// A checkpoint (checkpoint.go) is a request in the journal that goes from stage to stage; its image
// is captured by runsc/capture, written to the spool, and replicated to the store. A restore
// (restore.go) is a decision that the shim asks for, and a source of bytes that the sandbox then
// reads. The local service (service.go, shimservice.go) is the door to both.
//
// An agent may be killed at any moment. What it owes afterwards is in the journal: recover.go pays
// it before anything new is taken.
package agent
