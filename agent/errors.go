package agent

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

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

// codesOf maps kinds of errors to gRPC codes; the first that matches counts.
var codesOf = []struct {
	kind error
	code codes.Code
}{
	{ErrInvalid, codes.InvalidArgument},
	{ErrNameTaken, codes.AlreadyExists},
	{storage.ErrInvalidName, codes.InvalidArgument},
	{cri.ErrAmbiguous, codes.InvalidArgument},
	{ErrNotReplicated, codes.Unavailable},
	{storage.ErrCorrupt, codes.DataLoss},
	{storage.ErrTruncated, codes.DataLoss},
	{cri.ErrNotFound, codes.NotFound},
	{storage.ErrNotFound, codes.NotFound},
	{storage.ErrExists, codes.AlreadyExists},
	{storage.ErrNoSpace, codes.ResourceExhausted},
	{unix.ENOSPC, codes.ResourceExhausted},
	{volume.ErrLimit, codes.ResourceExhausted},
	{storage.ErrTooManyChunks, codes.ResourceExhausted},
	{ErrVolume, codes.FailedPrecondition},
	{ErrMemoryLimit, codes.FailedPrecondition},
	{storage.ErrFormat, codes.FailedPrecondition},
	{storage.ErrKey, codes.FailedPrecondition},
	{storage.ErrDenied, codes.PermissionDenied},
	{storage.ErrUnavailable, codes.Unavailable},
	{cri.ErrOtherRuntime, codes.FailedPrecondition},
	{cri.ErrNotRunning, codes.FailedPrecondition},
	{ErrKubelet, codes.FailedPrecondition},
	{ErrInUse, codes.FailedPrecondition},
	{ErrElsewhere, codes.FailedPrecondition},
	{ErrClusterAway, codes.Unavailable},
	{ErrSandboxExited, codes.Aborted},
	{ErrCaptureTime, codes.Aborted},
	{ErrStopping, codes.Unavailable},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// toStatus turns an error into one that gRPC sends with a code that callers can act on.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if incompatible := new(runsc.IncompatibleError); errors.As(err, &incompatible) {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	for _, c := range codesOf {
		if errors.Is(err, c.kind) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
