package model

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
)

// chaosPlan says how often a backend fails during an operation; 0 is never.
type chaosPlan struct {
	Rate float64
	Seed uint64
}

// chaos makes the faults of a node.
type chaos struct {
	mu     sync.Mutex
	plan   chaosPlan
	rand   *rand.Rand
	faults int
}

// begin puts a plan into effect.
func (c *chaos) begin(p chaosPlan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan, c.rand, c.faults = p, rand.New(rand.NewPCG(p.Seed, 1)), 0
}

// end lets the backend be well, and returns how many faults there were.
func (c *chaos) end() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan = chaosPlan{}
	return c.faults
}

var errInjected = errors.New("injected")

// longestStall bounds how long an operation of a backend stalls.
const longestStall = 8 * time.Millisecond

// hook is a fault.Hook. What was during its operation an error that says that nothing was made is
// never injected afterwards: the contract of a backend forbids that.
func (c *chaos) hook(op fault.Op, _ string) (f fault.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan.Rate == 0 || c.rand.Float64() >= c.plan.Rate {
		return f
	}
	c.faults++
	err := fmt.Errorf("%w: %w", storage.ErrUnavailable, errInjected)
	switch c.rand.IntN(7) {
	case 0:
		f.Before = err
	case 1:
		f.During = err
	case 2, 3:
		f.After = err // a write that succeeded, and reports that it failed
	case 4:
		stall := make(chan struct{})
		time.AfterFunc(time.Duration(c.rand.Int64N(int64(longestStall))), func() { close(stall) })
		f.Stall = stall
	case 5:
		f.Short = true
	case 6:
		f.Flip = true
	}
	if op != fault.ReadAt && (f.Short || f.Flip) {
		f = fault.Fault{Before: storage.ErrUnavailable}
	}
	return f
}
