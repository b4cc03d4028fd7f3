// Package errkind has the kinds of errors that requests to an agent fail with, and that more than one
// package must tell apart. An error of a kind wraps it: use errors.Is.
package errkind

import "errors"

// Kinds of errors of requests.
var (
	// ErrSandboxExited: the sandbox ended while it was being checkpointed or restored.
	ErrSandboxExited = errors.New("the sandbox exited")
	// ErrCaptureTime: a capture took longer than is allowed; the sandbox runs on.
	ErrCaptureTime = errors.New("the capture took too long and was given up")
	// ErrStopping: the agent is being stopped.
	ErrStopping = errors.New("the agent is being stopped")
	// ErrKubelet: a kubelet runs on this node.
	ErrKubelet = errors.New("a kubelet runs on this node")
	// ErrInUse: a snapshot is being restored from.
	ErrInUse = errors.New("in use")
	// ErrReplaced: the snapshot was removed. It comes with storage.ErrNotFound.
	ErrReplaced = errors.New("it was removed, and another one has been made under its name")
	// ErrInvalid: a request that cannot be understood.
	ErrInvalid = errors.New("invalid request")
	// ErrClusterAway: the cluster, without which a request cannot be decided, does not answer.
	ErrClusterAway = errors.New("the cluster does not answer")
	// ErrElsewhere: a snapshot is another node's to remove.
	ErrElsewhere = errors.New("not of this node")
	// ErrNotReplicated: a snapshot is on this node and not yet in the store.
	ErrNotReplicated = errors.New("not replicated yet")
	// ErrNeverReplicated: a snapshot is on this node and will never be in the store.
	ErrNeverReplicated = errors.New("not replicated, and it will not be tried again")
	// ErrNameTaken: a pod that runs, or is being restored, has the name already.
	ErrNameTaken = errors.New("the name is taken")
	// ErrMemoryLimit: a pod's memory limit is below what its snapshot needs.
	ErrMemoryLimit = errors.New("raise the limit")
	// ErrVolume: a volume of the node cannot be in a snapshot, or not come back from it.
	ErrVolume = errors.New("a volume of the node stands in the way")
)
