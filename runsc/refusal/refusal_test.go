package refusal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// TestTables: each kind passes containerd, and reaches the agent as the kind that its row says.
func TestTables(t *testing.T) {
	for name, table := range map[string]Table{"sleep": Sleep, "lease": Lease} {
		for _, r := range table {
			said := fmt.Errorf("sandbox a: %w", table.Tell(fmt.Errorf("why: %w", r.Kind)))
			got := table.Read(errgrpc.ToNative(errgrpc.ToGRPC(said)))
			if !errors.Is(got, r.Class) {
				t.Errorf("%s: %q comes as %q, which is not of class %q", name, r.Kind, got, r.Class)
			}
			for _, other := range table {
				if other.Read != nil && errors.Is(got, other.Read) != (other.Read == r.Read) {
					t.Errorf("%s: %q comes as %q, of kind %q", name, r.Kind, got, other.Read)
				}
			}
			if errdefs.IsInvalidArgument(got) || errdefs.IsUnavailable(got) {
				t.Errorf("%s: %q comes as %q, as if no shim had answered that knows the order", name, r.Kind, got)
			}
		}
		if table.Tell(nil) != nil || table.Read(nil) != nil {
			t.Errorf("%s: no error is one", name)
		}
		other := errors.New("disk full")
		if table.Tell(other) != other || table.Read(errdefs.ErrUnavailable) != error(errdefs.ErrUnavailable) {
			t.Errorf("%s: an error of no kind gets one", name)
		}
	}
}
