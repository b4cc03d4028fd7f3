package pace

import (
	"time"

	"github.com/prometheus/procfs"
)

// freeTime returns for how long the processors of a node could have done more, all together, since some instant: they
// had nothing to do, and nobody waited for one. Both occur at once where threads wake each other all the time, as they
// do when a sandbox makes system calls. Somebody who takes what is idle in between is in their way. Waiting for a disk
// is nothing to do. A kernel without pressure stall information (PSI) does not say who waits. One that says nothing at
// all has nothing free.
func freeTime(processors int) time.Duration {
	fs, err := procfs.NewFS(procfs.DefaultMountPoint)
	if err != nil {
		return 0
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0
	}
	free := time.Duration((stat.CPUTotal.Idle + stat.CPUTotal.Iowait) * float64(time.Second))
	if waited, err := fs.PSIStatsForResource("cpu"); err == nil && waited.Some != nil {
		free -= time.Duration(waited.Some.Total) * time.Microsecond * time.Duration(processors)
	}
	return free
}
