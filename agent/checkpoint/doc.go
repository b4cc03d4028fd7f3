// Package checkpoint takes snapshots of sandboxes.
//
// A checkpoint is a request in the journal that goes from stage to stage (checkpoint.go): it is accepted and waits for
// its sandbox's turn (accept.go), prepares what it can before the pause (prepare.go), captures the image (take.go),
// writes it to the spool (save.go), ends the sandbox if it is to stop (stop.go) or hands it over (handover.go), and is
// replicated. The journal says paused before the sandbox is paused, and spooled and replicated once the snapshot is
// there (entry.go). Package room has what a checkpoint takes of its node, package spool writes what is stored.
//
// A request may be over while something is still to be done for it: the agent died, containerd did not answer, or the
// journal could not be written. Such a request is unsettled. settle.go settles it; a new agent begins with that
// (recover.go). Three rules hold all the time. No sandbox is ended that may have run since its snapshot was taken. No
// sandbox stays paused. No request says that it has failed if its snapshot is safe.
//
// A checkpoint that the sandbox's own processes begin (workload.go) arrives with the socket of its sentry.
package checkpoint
