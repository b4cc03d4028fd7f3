package pace

import (
	"time"

	"github.com/prometheus/procfs"
)

// idleTime returns for how long the node's processors have had nothing to do since its start, all together. Waiting for
// a disk is nothing to do. If the kernel does not say, it returns 0: no processor is free then.
func idleTime() time.Duration {
	fs, err := procfs.NewFS(procfs.DefaultMountPoint)
	if err != nil {
		return 0
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0
	}
	return time.Duration((stat.CPUTotal.Idle + stat.CPUTotal.Iowait) * float64(time.Second))
}
