// Package errkind has the kinds of errors of requests to an agent that more than one package must tell apart. An error
// of a kind wraps it: use errors.Is. It also has what programs make of an error: error_code, and the exit code.
package errkind

import "errors"

// Kinds of errors of requests.
var (
	// ErrSandboxExited: the sandbox ended while it was being checkpointed or restored.
	ErrSandboxExited = errors.New("the sandbox exited")
	// ErrCaptureTime: a capture exceeded its deadline; the sandbox runs on.
	ErrCaptureTime = errors.New("the capture took too long and was canceled")
	// ErrStopping: the agent is being stopped.
	ErrStopping = errors.New("the agent is being stopped")
	// ErrKubelet: a kubelet runs on this node.
	ErrKubelet = errors.New("a kubelet runs on this node")
	// ErrInUse: a restore reads the snapshot.
	ErrInUse = errors.New("in use")
	// ErrReplaced: the snapshot was removed and another one has its name. It comes with storage.ErrNotFound.
	ErrReplaced = errors.New("it was removed, and another one has been made under its name")
	// ErrInvalid: the request is not valid.
	ErrInvalid = errors.New("invalid request")
	// ErrClusterAway: the cluster does not answer, and the request cannot be decided without it.
	ErrClusterAway = errors.New("the cluster does not answer")
	// ErrElsewhere: only another node may remove the snapshot.
	ErrElsewhere = errors.New("not of this node")
	// ErrNotReplicated: the snapshot is on this node and not yet in its store.
	ErrNotReplicated = errors.New("not replicated yet")
	// ErrNeverReplicated: the snapshot is on this node and will never be in its store.
	ErrNeverReplicated = errors.New("not replicated, and it will not be retried")
	// ErrNameTaken: a pod that runs, or is being restored, already has the name.
	ErrNameTaken = errors.New("the name is taken")
	// ErrMemoryLimit: a pod's memory limit is below what its snapshot needs.
	ErrMemoryLimit = errors.New("raise the limit")
	// ErrBudget: a checkpoint would exceed a budget of its node. Nothing was done to its sandbox, unless it outgrew the
	// budget while it was captured.
	ErrBudget = errors.New("beyond a budget of this node")
	// ErrNotConfirmed: the cluster's controller has not confirmed the snapshot, so no other node restores it.
	ErrNotConfirmed = errors.New("not confirmed")
	// ErrNotAllowed: a workload may not save its sandbox.
	ErrNotAllowed = errors.New("not allowed")
	// ErrImage: a container was made from another image than its snapshot.
	ErrImage = errors.New("the image differs")
	// ErrVolume: a volume on the node cannot be saved in a snapshot, or cannot be restored from it.
	ErrVolume = errors.New("a volume of the node stands in the way")
	// ErrNetAdmin: a container may have changed the pod's network, which gVisor does not save.
	ErrNetAdmin = errors.New("NET_ADMIN")
)
