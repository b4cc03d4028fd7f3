// Package checkpoint takes snapshots of sandboxes.
//
// A checkpoint is a request in the journal that goes from stage to stage (checkpoint.go): it is accepted, waits for its
// sandbox's turn, prepares what it can before the pause, captures the image (take.go), writes it to the spool
// (spool.go), ends the sandbox if it is to stop (stop.go), and is replicated. A stage is in the journal before the step
// that it names.
//
// What a request still owes when it is over, since the agent died, containerd did not answer or the journal could not
// be written, is settled later (recover.go, settle.go). Three rules hold all the time: no sandbox is ended that may have
// run since its snapshot was taken; none stays paused; and no request says failed whose snapshot is safe.
//
// A checkpoint that the sandbox's own processes begin (workload.go) arrives with the socket of its sentry.
package checkpoint
