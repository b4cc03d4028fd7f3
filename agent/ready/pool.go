// Package ready has sandboxes created for pods that sleep, so that their wakes need not do so. It decides for which,
// within a budget of memory: those whose policy wishes it, and then those that fell asleep last or wake often. What is
// ready gives way to whatever needs the memory.
//
// Package shim creates the sandboxes. Which pods have one is in the marks of the pods that sleep, so the next agent
// goes on with what it finds. What policies wish it is told anew; how often pods have woken it does not know.
package ready

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"diapause.dev/runsc/sleep"
)

// How much of the budget a pod takes that is ready, in bytes: what its sandbox, its gofers and the processes that wait
// for its wake use, if the sandbox is only created, and if its kernel is loaded. bench/sleep has the measurement.
const (
	CreatedCost = 16 << 20
	LoadedCost  = 40 << 20
)

const (
	// lookEvery is how often the node's memory is looked at while pods sleep.
	lookEvery = 5 * time.Second
	// orderTime bounds an order to a shim.
	orderTime = 10 * time.Second
	// failedTime is how long a pod is left alone that could not be made ready.
	failedTime = time.Minute
	// checkEvery is how often a pod that is ready is made ready again, in case its sandbox has ended since.
	checkEvery = time.Minute
)

// Reasons for which a pod is no longer ready, for [Metrics].
const (
	ForMemory = "memory" // the node's memory is short, or a wake waits for it
	ForNewer  = "newer"  // other pods have fallen asleep since, or wake more often
	ForPolicy = "policy" // the pod's policy says that it is never ready
)

// Config is what a [Pool] works with.
type Config struct {
	Demand    *Demand               // which pods should be ready
	Memory    int64                 // bytes that all pods that are ready may take together
	Reserve   int64                 // bytes of the node's memory that they leave free
	Available func() (int64, error) // returns how many bytes of memory the node has free
	Waiting   func() int            // returns how many wakes wait for memory
	Asleep    func() []sleep.Mark   // returns the pods that sleep
	// Loads reports whether runsc can load a kernel before the wake: the repaired build can.
	Loads   func(ctx context.Context) bool
	Order   func(ctx context.Context, sandbox string, o sleep.Order) error
	Told    func(sandbox string) // is called when a pod was made ready, or no longer is, and must not block
	Metrics Metrics
	Logger  *slog.Logger
}

// Metrics count what a pool does.
type Metrics interface {
	// MadeReady counts a pod that was made ready, or was not because of err.
	MadeReady(err error)
	// DroppedReady counts a pod that is no longer ready, by the reason.
	DroppedReady(reason string)
}

// Pool keeps pods ready. Its methods may be called concurrently.
type Pool struct {
	Config
	failed  map[string]time.Time // when a pod could not be made ready, by its sandbox
	checked map[string]time.Time // when a pod that is ready was last made so
	told    map[string]bool      // who was told to be ready, by the sandbox
}

// New returns a pool.
func New(c Config) *Pool {
	return &Pool{
		Config: c, failed: make(map[string]time.Time), checked: make(map[string]time.Time),
		told: make(map[string]bool),
	}
}

// Run keeps pods ready until ctx is done. Those that are ready then stay so. If no pod may be ready, Run returns once
// those that an earlier agent has left are not.
func (p *Pool) Run(ctx context.Context) {
	for ctx.Err() == nil {
		again := p.look(ctx)
		if p.Memory < CreatedCost && p.Ready() == 0 {
			return
		}
		var timer <-chan time.Time
		if again > 0 {
			timer = time.After(again)
		}
		select {
		case <-timer:
		case <-p.Demand.changed:
		case <-ctx.Done():
		}
	}
}

// Ready returns how many pods are ready.
func (p *Pool) Ready() int { return count(p.Asleep()) }

func count(asleep []sleep.Mark) (ready int) {
	for _, m := range asleep {
		if m.Ready {
			ready++
		}
	}
	return ready
}

// look has pods made ready, and others no longer, and returns when to look again; 0: when something has changed.
func (p *Pool) look(ctx context.Context) (again time.Duration) {
	asleep, now := p.Asleep(), time.Now()
	p.forget(asleep, now)
	p.tell(asleep)
	load, cost := p.Loads(ctx), int64(CreatedCost)
	if load {
		cost = LoadedCost
	}
	n, short := p.room(asleep, cost)
	ready, drop, next := plan(p.candidates(asleep, now), n)
	if p.Demand.awaited() {
		if ready = nil; !short {
			drop = nil
		}
	}
	for _, c := range drop {
		p.drop(ctx, c, short)
	}
	for _, c := range ready {
		if ctx.Err() == nil {
			p.make(ctx, c.Mark, load)
		}
	}
	p.check(ctx, load)
	p.tell(p.Asleep())
	switch {
	case next > 0:
		return min(next, lookEvery)
	case len(asleep) > 0:
		return lookEvery
	}
	return 0
}

// tell calls Told for each pod whose mark says something else than when Told was called last.
func (p *Pool) tell(asleep []sleep.Mark) {
	for _, m := range asleep {
		if m.Ready != p.told[m.Sandbox] {
			p.told[m.Sandbox] = m.Ready
			p.Told(m.Sandbox)
		}
	}
}

// candidates returns the pods that sleep, with what is known of them. It leaves out those that have just failed.
func (p *Pool) candidates(asleep []sleep.Mark, now time.Time) (all []candidate) {
	for _, m := range asleep {
		if _, failed := p.failed[m.Sandbox]; failed && !m.Ready {
			continue
		}
		c := candidate{Mark: m, slept: max(0, now.Sub(m.Since))}
		c.wish, c.wakes = p.Demand.of(m.UID, now)
		all = append(all, c)
	}
	return all
}

// room returns how many pods may be ready, which cost so much each. Short says that they would be more if the node had
// more memory.
func (p *Pool) room(asleep []sleep.Mark, cost int64) (n int, short bool) {
	most := int(p.Memory / cost)
	if most == 0 || p.Reserve == 0 { // no wake waits for memory on this node
		return most, false
	}
	if p.Waiting() > 0 {
		return 0, true
	}
	free, err := p.Available()
	if err != nil {
		p.Logger.Error("it is not known what memory is free: no pod is made ready to wake", "error", err)
		return 0, true
	}
	now := count(asleep)
	n = now + int((free-p.Reserve)/cost)
	if free < p.Reserve {
		n = now - int((p.Reserve-free+cost-1)/cost)
	}
	return max(0, min(n, most)), n < most
}

// check has the pods that are ready made so again from time to time. Their shims do so if the sandbox has ended.
func (p *Pool) check(ctx context.Context, load bool) {
	for _, m := range p.Asleep() {
		if m.Ready && time.Since(p.checked[m.Sandbox]) >= checkEvery && ctx.Err() == nil {
			p.make(ctx, m, load)
		}
	}
}

func (p *Pool) make(ctx context.Context, m sleep.Mark, load bool) {
	p.checked[m.Sandbox] = time.Now()
	err := p.order(ctx, m, sleep.Order{Verb: sleep.MakeReady, Load: load})
	if errors.Is(err, sleep.ErrUnfit) || m.Ready && err == nil { // it wakes, or has ended; or most likely was ready
		return
	}
	p.Metrics.MadeReady(err)
	if err != nil {
		p.failed[m.Sandbox] = time.Now()
		p.Logger.Warn("a pod that sleeps is not made ready to wake", "sandbox", m.Sandbox, "error", err)
	}
}

func (p *Pool) drop(ctx context.Context, c candidate, short bool) {
	if err := p.order(ctx, c.Mark, sleep.Order{Verb: sleep.DropReady}); err != nil {
		p.Logger.Warn("a pod that sleeps stays ready to wake", "sandbox", c.Sandbox, "error", err)
		return
	}
	reason := ForNewer
	switch {
	case c.wish == Never:
		reason = ForPolicy
	case short:
		reason = ForMemory
	}
	p.Metrics.DroppedReady(reason)
}

func (p *Pool) order(ctx context.Context, m sleep.Mark, o sleep.Order) error {
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	return p.Order(ctx, m.Sandbox, o)
}

// forget forgets failures that are long ago, and what is of pods that no longer sleep.
func (p *Pool) forget(asleep []sleep.Mark, now time.Time) {
	sleeps := make(map[string]bool, len(asleep))
	for _, m := range asleep {
		sleeps[m.Sandbox] = true
	}
	for sandbox, at := range p.failed {
		if !sleeps[sandbox] || now.Sub(at) >= failedTime {
			delete(p.failed, sandbox)
		}
	}
	maps.DeleteFunc(p.checked, func(sandbox string, _ time.Time) bool { return !sleeps[sandbox] })
	maps.DeleteFunc(p.told, func(sandbox string, _ bool) bool { return !sleeps[sandbox] })
}
