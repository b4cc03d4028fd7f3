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
	"diapause.dev/cri/plan"
	"diapause.dev/runsc"
	"diapause.dev/runsc/refusal"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

// told is what a caller is told of an error: its code, the error_code in JSON, and the exit code of diapause.
type told struct {
	err  error
	code codes.Code
	name string
	exit int
}

// kinds has every kind of error that a caller is told apart.
var kinds = []told{
	{errkind.ErrInvalid, codes.InvalidArgument, "usage", 2},
	{errkind.ErrNameTaken, codes.AlreadyExists, "already_exists", 1},
	{errkind.ErrNotReplicated, codes.Unavailable, "unavailable", 1},
	{errkind.ErrNeverReplicated, codes.Internal, "failure", 1},
	{errkind.ErrNotConfirmed, codes.Unavailable, "unavailable", 1},
	{errkind.ErrNotAllowed, codes.PermissionDenied, "permission_denied", 1},
	{errkind.ErrBudget, codes.ResourceExhausted, "resource_exhausted", 1},
	{errkind.ErrVolume, codes.FailedPrecondition, "failed_precondition", 1},
	{errkind.ErrNetAdmin, codes.FailedPrecondition, "failed_precondition", 1},
	{errkind.ErrMemoryLimit, codes.FailedPrecondition, "failed_precondition", 1},
	{errkind.ErrImage, codes.FailedPrecondition, "failed_precondition", 1},
	{errkind.ErrKubelet, codes.FailedPrecondition, "failed_precondition", 1},
	{errkind.ErrInUse, codes.FailedPrecondition, "failed_precondition", 1},
	{errkind.ErrElsewhere, codes.FailedPrecondition, "failed_precondition", 1},
	{errkind.ErrReplaced, codes.NotFound, "not_found", 3},
	{errkind.ErrClusterAway, codes.Unavailable, "unavailable", 1},
	{errkind.ErrSandboxExited, codes.Aborted, "aborted", 1},
	{errkind.ErrCaptureTime, codes.Aborted, "aborted", 1},
	{errkind.ErrStopping, codes.Unavailable, "unavailable", 1},
	{cri.ErrAmbiguous, codes.InvalidArgument, "usage", 2},
	{cri.ErrNotFound, codes.NotFound, "not_found", 3},
	{cri.ErrOtherRuntime, codes.FailedPrecondition, "failed_precondition", 1},
	{cri.ErrNotRunning, codes.FailedPrecondition, "failed_precondition", 1},
	{plan.ErrNotAllowed, codes.PermissionDenied, "permission_denied", 1},
	{storage.ErrInvalidName, codes.InvalidArgument, "usage", 2},
	{storage.ErrCorrupt, codes.DataLoss, "data_loss", 1},
	{storage.ErrTruncated, codes.DataLoss, "data_loss", 1},
	{storage.ErrNotFound, codes.NotFound, "not_found", 3},
	{storage.ErrExists, codes.AlreadyExists, "already_exists", 1},
	{storage.ErrNoSpace, codes.ResourceExhausted, "resource_exhausted", 1},
	{storage.ErrTooManyChunks, codes.ResourceExhausted, "resource_exhausted", 1},
	{storage.ErrFormat, codes.FailedPrecondition, "failed_precondition", 1},
	{storage.ErrKey, codes.FailedPrecondition, "failed_precondition", 1},
	{storage.ErrUntrusted, codes.FailedPrecondition, "failed_precondition", 1},
	{storage.ErrDenied, codes.PermissionDenied, "permission_denied", 1},
	{storage.ErrUnavailable, codes.Unavailable, "unavailable", 1},
	{sleep.ErrUnfit, codes.FailedPrecondition, "failed_precondition", 1},
	{sleep.ErrInUse, codes.FailedPrecondition, "failed_precondition", 1},
	{sleep.ErrTraffic, codes.Aborted, "aborted", 1},
	{volume.ErrLimit, codes.ResourceExhausted, "resource_exhausted", 1},
	{unix.ENOSPC, codes.ResourceExhausted, "resource_exhausted", 1},
	{context.Canceled, codes.Canceled, "canceled", 130},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "deadline_exceeded", 1},
}

// TestKinds: every kind has a code, an error_code and an exit code, and the text of an error stays.
func TestKinds(t *testing.T) {
	all := append([]told{
		{&storage.CorruptError{Object: "o", Reason: "r"}, codes.DataLoss, "data_loss", 1},
		{&runsc.IncompatibleError{}, codes.FailedPrecondition, "failed_precondition", 1},
		{errors.New("anything"), codes.Internal, "failure", 1},
		// What the error means for the caller takes precedence over its cause.
		{fmt.Errorf("%w: %w", errkind.ErrNotReplicated, storage.ErrNoSpace), codes.Unavailable, "unavailable", 1},
		{fmt.Errorf("%w: %w", errkind.ErrNotConfirmed, context.DeadlineExceeded), codes.Unavailable, "unavailable", 1},
		{fmt.Errorf("%w: %w", errkind.ErrStopping, context.Canceled), codes.Unavailable, "unavailable", 1},
		{fmt.Errorf("%w: %w", errkind.ErrNeverReplicated, storage.ErrCorrupt), codes.DataLoss, "data_loss", 1},
		{errors.Join(errors.New("first"), storage.ErrExists), codes.AlreadyExists, "already_exists", 1},
	}, kinds...)
	for _, tt := range all {
		wrapped := fmt.Errorf("checkpoint %q: %w", "pod", tt.err)
		got := status.Convert(toStatus(wrapped))
		if got.Code() != tt.code || got.Message() != wrapped.Error() {
			t.Errorf("%v: %v %q, want %v", tt.err, got.Code(), got.Message(), tt.code)
		}
		if c := errkind.ClassOf(got.Code()); c.Name != tt.name || c.Exit != tt.exit {
			t.Errorf("%v: error_code %s, exit code %d, want %s, %d", tt.err, c.Name, c.Exit, tt.name, tt.exit)
		}
	}
	if toStatus(nil) != nil {
		t.Error("no error is one")
	}
}

// TestNoKindMissing: kinds has each kind that has a code, and each as which the agent reads a shim's refusal of an
// order about sleep. TestErrorKinds in test/structure finds those that have no code.
func TestNoKindMissing(t *testing.T) {
	has := make(map[error]bool)
	for _, k := range kinds {
		has[k.err] = true
	}
	for _, c := range codesOf {
		if !has[c.kind] {
			t.Errorf("%v has a code and is not in kinds", c.kind)
		}
	}
	for _, r := range refusal.Sleep {
		if r.Read != nil && !has[r.Read] {
			t.Errorf("%v is a shim's refusal and is not in kinds", r.Read)
		}
	}
}
