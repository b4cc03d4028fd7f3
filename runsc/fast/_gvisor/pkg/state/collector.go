package state

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"weak"
)

// headroom is how much the heap may grow during a Save or a Load before the garbage collector starts, in bytes. Nearly
// all that they allocate stays in use until they end, so collecting earlier finds little.
const headroom = 64 << 20

// patience has the garbage collector wait for the heap to grow by headroom. From its next cycle on, or when the last
// who asked has ended, it works as before. Saves of memory files run beside that of the kernel.
var patience collectorPatience

type collectorPatience struct {
	mu sync.Mutex

	// users is the number of Saves and Loads that are under way.
	users int

	// percent is what was set before, changed whether something else is set now.
	percent int
	changed bool

	// cycle refers to something that the next cycle collects.
	cycle weak.Pointer[sentinel]
}

// sentinel is large enough not to share its memory with anything else.
type sentinel struct{ _ [4]*sentinel }

// begin is called when a Save or a Load begins, and end when it ends.
func (c *collectorPatience) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users++; c.users > 1 {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(live)
	wanted := int(100 * headroom / max(live[0].Value.Uint64(), 1<<20))
	if now := live[1].Value.Uint64(); now >= uint64(wanted) {
		return
	}
	c.percent, c.changed = debug.SetGCPercent(wanted), true
	c.cycle = weak.Make(new(sentinel))
}

// look is called now and then. It ends the patience when the collector has run.
func (c *collectorPatience) look() {
	if c.cycle.Value() == nil {
		c.mu.Lock()
		c.restore()
		c.mu.Unlock()
	}
}

func (c *collectorPatience) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 {
		c.restore()
	}
}

// restore sets what was set before.
func (c *collectorPatience) restore() {
	if c.changed {
		debug.SetGCPercent(c.percent)
		c.changed = false
	}
}
