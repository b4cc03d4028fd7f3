package cri

import (
	"errors"
	"fmt"
	"testing"

	"diapause.dev/runsc/sleep"
	"github.com/containerd/errdefs"
)

// TestOrderError: what a shim says of an order has its kind. Where no shim has answered, there is none.
func TestOrderError(t *testing.T) {
	for _, tt := range []struct {
		said error
		want error
	}{
		{fmt.Errorf("packets came for sandbox a: %w", errdefs.ErrOutOfRange), sleep.ErrTraffic},
		{fmt.Errorf("dial containerd: connection refused: %w", errdefs.ErrUnavailable), nil},
		{fmt.Errorf("the sandbox does not answer: %w", errdefs.ErrUnavailable), nil},
		{fmt.Errorf("container a has a terminal: %w", errdefs.ErrFailedPrecondition), sleep.ErrUnfit},
		{fmt.Errorf("resources: %w", errdefs.ErrInvalidArgument), sleep.ErrUnfit},
		{fmt.Errorf("a process was started: %w", errdefs.ErrResourceExhausted), sleep.ErrInUse},
	} {
		got := orderError(tt.said)
		for _, kind := range []error{sleep.ErrTraffic, sleep.ErrUnfit, sleep.ErrInUse} {
			if errors.Is(got, kind) != (kind == tt.want) {
				t.Errorf("%q is of kind %q: %v", tt.said, kind, errors.Is(got, kind))
			}
		}
	}
	if err := orderError(nil); err != nil {
		t.Errorf("success is %v", err)
	}
}
