package restore

import (
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// sandboxOverhead is the least memory, in bytes, that a restored sandbox has besides its application's: the sentry, its
// gofers and the sidecar. Measured are 25 MiB and more; what is refused must be sure not to fit.
const sandboxOverhead = 16 << 20

// roomFor returns an error if a pod with that memory limit, in bytes, cannot hold what it is restored from. A limit
// of 0 is none. A pod that turns out to need more is killed in its own cgroup.
func roomFor(meta *snapshot.Meta, limit int64) error {
	need := meta.Memory + sandboxOverhead
	if limit == 0 || meta.Memory == 0 || need <= limit {
		return nil
	}
	return fmt.Errorf("restore %s: snapshot needs %d MiB, the pod's memory limit is %d MiB: %w",
		meta.Key, need>>20, limit>>20, errkind.ErrMemoryLimit)
}
