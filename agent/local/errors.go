package local

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/agent/errkind"
	"diapause.dev/cri"
	"diapause.dev/cri/plan"
	"diapause.dev/runsc"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

// codesOf maps kinds of errors to gRPC codes. The first match counts. Package errdefs has classes for that. But each
// kind would have to name its class where it is defined, in package storage too. And an error of two kinds would get
// the code of the class that errdefs looks for first: a snapshot that is not replicated because its store is full would
// be ResourceExhausted, and not Unavailable.
//
// What a code means for the caller of a program is in package errkind (Class). Shims also act on the codes that package
// localv1 names. How a shim's own refusals reach the agent is in package refusal of runsc.
var codesOf = []struct {
	kind error
	code codes.Code
}{
	{errkind.ErrInvalid, codes.InvalidArgument},
	{errkind.ErrNameTaken, codes.AlreadyExists},
	{storage.ErrInvalidName, codes.InvalidArgument},
	{cri.ErrAmbiguous, codes.InvalidArgument},
	{errkind.ErrNotReplicated, codes.Unavailable},
	{errkind.ErrNotConfirmed, codes.Unavailable},
	{errkind.ErrNotAllowed, codes.PermissionDenied},
	{errkind.ErrBudget, codes.ResourceExhausted},
	{storage.ErrCorrupt, codes.DataLoss},
	{storage.ErrTruncated, codes.DataLoss},
	{cri.ErrNotFound, codes.NotFound},
	{storage.ErrNotFound, codes.NotFound},
	{storage.ErrExists, codes.AlreadyExists},
	{storage.ErrNoSpace, codes.ResourceExhausted},
	{unix.ENOSPC, codes.ResourceExhausted},
	{volume.ErrLimit, codes.ResourceExhausted},
	{storage.ErrTooManyChunks, codes.ResourceExhausted},
	{errkind.ErrVolume, codes.FailedPrecondition},
	{errkind.ErrNetAdmin, codes.FailedPrecondition},
	{errkind.ErrMemoryLimit, codes.FailedPrecondition},
	{errkind.ErrImage, codes.FailedPrecondition},
	{storage.ErrFormat, codes.FailedPrecondition},
	{storage.ErrKey, codes.FailedPrecondition},
	{storage.ErrUntrusted, codes.FailedPrecondition},
	{storage.ErrDenied, codes.PermissionDenied},
	{plan.ErrNotAllowed, codes.PermissionDenied},
	{storage.ErrUnavailable, codes.Unavailable},
	{cri.ErrOtherRuntime, codes.FailedPrecondition},
	{cri.ErrNotRunning, codes.FailedPrecondition},
	{errkind.ErrKubelet, codes.FailedPrecondition},
	{errkind.ErrInUse, codes.FailedPrecondition},
	{sleep.ErrUnfit, codes.FailedPrecondition},
	{sleep.ErrInUse, codes.FailedPrecondition},
	{sleep.ErrTraffic, codes.Aborted},
	{errkind.ErrElsewhere, codes.FailedPrecondition},
	{errkind.ErrClusterAway, codes.Unavailable},
	{errkind.ErrSandboxExited, codes.Aborted},
	{errkind.ErrCaptureTime, codes.Aborted},
	{errkind.ErrStopping, codes.Unavailable},
	{errkind.ErrReplaced, codes.NotFound},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{errkind.ErrNeverReplicated, codes.Internal}, // last: its cause says more, if it has a kind
}

// toStatus turns an error into a gRPC error with a code on which callers can act.
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
