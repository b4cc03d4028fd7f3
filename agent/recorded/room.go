package recorded

import (
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// SandboxOverhead is the least memory, in bytes, that a restored sandbox needs besides its application's: for the
// sentry, its gofers and the sidecar. The measured overhead is 25 MiB and more. The constant is lower, so that a pod is
// refused only if it certainly does not fit.
const SandboxOverhead = 16 << 20

// Room returns an error if a pod with this memory limit, in bytes, cannot hold the snapshot's memory. 0 means no
// limit. A pod that turns out to need more is killed in its own cgroup.
func Room(meta *snapshot.Meta, limit int64) error {
	need := meta.Memory + SandboxOverhead
	if limit == 0 || meta.Memory == 0 || need <= limit {
		return nil
	}
	return fmt.Errorf("restore %s: snapshot needs %d MiB, the pod's memory limit is %d MiB: %w",
		meta.Key, need>>20, limit>>20, errkind.ErrMemoryLimit)
}
