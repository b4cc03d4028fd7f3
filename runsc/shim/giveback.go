package shim

import (
	"runtime/debug"
	"time"
)

// giveBackAfter is how long a pod sleeps before its shims give memory back. One that wakes sooner needs it again.
const giveBackAfter = time.Second

// giveBack returns to the node what this process has used for the fall, and does not need while the pod sleeps. Go
// would keep it for later, and a node has hundreds of such processes.
func (z *sleeper) giveBack() {
	if z.asleep.Load() {
		debug.FreeOSMemory()
	}
}
