package start

import (
	"errors"
	"fmt"
	"testing"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/runsc/hostfile"
)

// TestWhyNot: a volume that has changed is a reason of its own, by which an owner can tell it from other failures.
func TestWhyNot(t *testing.T) {
	for reason, failure := range map[string]error{
		podsnapshotv1.ReasonVolumeChanged:   fmt.Errorf("snapshot: %w", fmt.Errorf("volume: %w", hostfile.ErrChanged)),
		podsnapshotv1.ReasonFailedToRestore: errors.New("another"),
	} {
		if got := whyNot(failure); got != reason {
			t.Errorf("%v: %s, want %s", failure, got, reason)
		}
	}
}
