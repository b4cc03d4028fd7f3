package local

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/agent/errkind"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

func TestToStatus(t *testing.T) {
	if toStatus(nil) != nil {
		t.Error("no error is one")
	}
	for _, tt := range []struct {
		err  error
		want codes.Code
	}{
		{errkind.ErrInvalid, codes.InvalidArgument},
		{storage.ErrInvalidName, codes.InvalidArgument},
		{cri.ErrAmbiguous, codes.InvalidArgument},
		{cri.ErrNotFound, codes.NotFound},
		{storage.ErrNotFound, codes.NotFound},
		{storage.ErrExists, codes.AlreadyExists},
		{storage.ErrNoSpace, codes.ResourceExhausted},
		{unix.ENOSPC, codes.ResourceExhausted},
		{&storage.CorruptError{Object: "o", Reason: "r"}, codes.DataLoss},
		{storage.ErrTruncated, codes.DataLoss},
		{storage.ErrFormat, codes.FailedPrecondition},
		{&runsc.IncompatibleError{}, codes.FailedPrecondition},
		{cri.ErrOtherRuntime, codes.FailedPrecondition},
		{cri.ErrNotRunning, codes.FailedPrecondition},
		{errkind.ErrKubelet, codes.FailedPrecondition},
		{errkind.ErrInUse, codes.FailedPrecondition},
		{storage.ErrUnavailable, codes.Unavailable},
		{errkind.ErrStopping, codes.Unavailable},
		{errkind.ErrSandboxExited, codes.Aborted},
		{errkind.ErrCaptureTime, codes.Aborted},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{errors.New("anything"), codes.Internal},
		// What the error means for the caller takes precedence over its cause.
		{fmt.Errorf("%w: %w", errkind.ErrNotReplicated, storage.ErrNoSpace), codes.Unavailable},
		{fmt.Errorf("%w: %w", errkind.ErrNotConfirmed, context.DeadlineExceeded), codes.Unavailable},
		{fmt.Errorf("%w: %w", errkind.ErrStopping, context.Canceled), codes.Unavailable},
		{errors.Join(errors.New("first"), storage.ErrExists), codes.AlreadyExists},
	} {
		wrapped := fmt.Errorf("checkpoint %q: %w", "pod", tt.err)
		got := status.Convert(toStatus(wrapped))
		if got.Code() != tt.want || got.Message() != wrapped.Error() {
			t.Errorf("%v: %v %q, want %v", tt.err, got.Code(), got.Message(), tt.want)
		}
	}
}
