package cri

import (
	"context"
	"errors"
	"testing"
	"time"

	"diapause.dev/runsc/lease"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// shim answers requests about leases with one error, and counts pauses without a lease.
type shim struct {
	tasksapi.TasksClient
	err    error
	pauses int
}

func (s *shim) Update(context.Context, *tasksapi.UpdateTaskRequest, ...grpc.CallOption) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.err
}

func (s *shim) Pause(context.Context, *tasksapi.PauseTaskRequest, ...grpc.CallOption) (*emptypb.Empty, error) {
	s.pauses++
	return &emptypb.Empty{}, nil
}

// TestPauseFor: a shim that knows no leases is paused without one. A lease that is over has its kind.
func TestPauseFor(t *testing.T) {
	old := &shim{err: status.Error(codes.InvalidArgument, "resources")}
	leased, err := (&Leases{tasks: &Tasks{client: old}}).PauseFor(t.Context(), "a", "me", time.Second)
	if err != nil || leased || old.pauses != 1 {
		t.Errorf("an old shim: leased %v, %v, %d pauses", leased, err, old.pauses)
	}
	over := &shim{err: status.Error(codes.FailedPrecondition, "it runs")}
	err = (&Leases{tasks: &Tasks{client: over}}).RenewPause(t.Context(), "a", "me", time.Second)
	if !errors.Is(err, lease.ErrRanOut) || over.pauses != 0 {
		t.Errorf("a lease that is over: %v", err)
	}
}
