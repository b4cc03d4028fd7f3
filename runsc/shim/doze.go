package shim

import (
	"runtime"
	"runtime/debug"
	"time"
)

// dozeAfter is how long a pod sleeps before its shims doze. One that wakes sooner needs again what they would give up.
const dozeAfter = time.Second

// doze makes this process cost less while the pod sleeps: a node has hundreds of them. It returns the memory that was
// used for the fall, which Go would keep for later. And it uses one processor, so that containerd's questions, which
// come every second, wake one thread and not several.
func (z *sleeper) doze() {
	z.gate.RLock()
	asleep := z.asleep.Load()
	if asleep {
		runtime.GOMAXPROCS(1)
	}
	z.gate.RUnlock()
	if asleep {
		debug.FreeOSMemory()
	}
}
