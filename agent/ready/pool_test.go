package ready

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/runsc/sleep"
)

// node is a node with pods that sleep.
type node struct {
	asleep  []sleep.Mark
	free    int64
	loads   bool // its runsc can load a kernel beforehand
	loaded  bool // it was told to
	waiting int
	fails   map[string]error // by sandbox
	orders  int
	made    []error
	dropped []string
	news    []string // sandboxes of which it was told
}

func (n *node) Asleep() []sleep.Mark { return slices.Clone(n.asleep) }

func (n *node) told(sandbox string) { n.news = append(n.news, sandbox) }

func (n *node) MadeReady(err error)        { n.made = append(n.made, err) }
func (n *node) DroppedReady(reason string) { n.dropped = append(n.dropped, reason) }

func (n *node) Order(_ context.Context, sandbox string, o sleep.Order) error {
	n.orders++
	err := n.fails[sandbox]
	for i := range n.asleep {
		switch {
		case n.asleep[i].Sandbox != sandbox:
		case err == nil:
			n.loaded = n.loaded || o.Load
			n.asleep[i].Ready = o.Verb == sleep.MakeReady
		case o.Verb == sleep.MakeReady: // a shim leaves nothing of it
			n.asleep[i].Ready = false
		}
	}
	return err
}

// ready returns the sandboxes that are ready.
func (n *node) ready() (all []string) {
	for _, m := range n.asleep {
		if m.Ready {
			all = append(all, m.Sandbox)
		}
	}
	return all
}

// pool returns a pool for that many pods. It leaves 100 MiB free.
func (n *node) pool(pods int) *Pool {
	return n.poolFor(NewDemand(false), pods)
}

// poolFor is pool, for a demand.
func (n *node) poolFor(d *Demand, pods int) *Pool {
	return New(Config{
		Demand: d, Memory: int64(pods) * CreatedCost, Reserve: 100 << 20,
		Available: func() (int64, error) { return n.free, nil }, Waiting: func() int { return n.waiting }, Asleep: n.Asleep,
		Loads: func(context.Context) bool { return n.loads }, Order: n.Order, Told: n.told, Metrics: n,
		Logger: slog.New(slog.DiscardHandler),
	})
}

// sleeping returns a node with 1 GiB free, whose pods have slept that long.
func sleeping(pods map[string]time.Duration) *node {
	n := &node{free: 1 << 30, fails: make(map[string]error)}
	for sandbox, slept := range pods {
		n.asleep = append(n.asleep, sleep.Mark{Sandbox: sandbox, UID: "uid-" + sandbox, Since: time.Now().Add(-slept)})
	}
	slices.SortFunc(n.asleep, func(a, b sleep.Mark) int { return b.Since.Compare(a.Since) })
	return n
}

func (n *node) want(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := n.ready(); !slices.Equal(got, want) {
		t.Errorf("%s, %q are ready, want %q", when, got, want)
	}
}

// TestNewest: the pods that fell asleep last are ready, once they have slept for a while, and no more than the budget
// allows.
func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sleeping(map[string]time.Duration{"hour": time.Hour, "minute": time.Minute, "half": 30 * time.Second, "new": 0})
		p := n.pool(2)
		if again := p.look(t.Context()); again <= 0 || again > settleTime {
			t.Errorf("it looks again after %v", again)
		}
		n.want(t, "at first", "half", "minute")
		time.Sleep(settleTime)
		p.look(t.Context())
		n.want(t, "then", "new", "half")
	})
}

// TestEndedMeanwhile: a pod whose sandbox has ended, which nothing says, is made ready again within a minute or so. If
// that fails, another takes its place.
func TestEndedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sleeping(map[string]time.Duration{"ended": time.Minute, "other": time.Hour})
		p := n.pool(1)
		p.look(t.Context())
		n.want(t, "at first", "ended")
		p.look(t.Context())
		if n.orders != 1 {
			t.Errorf("%d orders, want one", n.orders)
		}
		time.Sleep(checkEvery)
		p.look(t.Context())
		if n.orders != 2 || len(n.made) != 1 {
			t.Errorf("%d orders, %d counted, want a second that is not counted", n.orders, len(n.made))
		}
		n.fails["ended"] = errors.New("no room")
		time.Sleep(checkEvery)
		p.look(t.Context())
		p.look(t.Context())
		n.want(t, "then", "other")
	})
}

// TestRun: a pod that falls asleep is made ready without anybody calling, and one more is dropped for it.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sleeping(map[string]time.Duration{"old": time.Hour})
		p := n.pool(1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		synctest.Wait()
		n.want(t, "at once", "old")
		n.asleep = slices.Insert(n.asleep, 0, sleep.Mark{Sandbox: "new", UID: "uid-new", Since: time.Now()})
		p.Demand.Changed()
		time.Sleep(2 * settleTime)
		synctest.Wait()
		n.want(t, "after a while", "new")
		if !slices.Equal(n.dropped, []string{ForNewer}) {
			t.Errorf("dropped for %q", n.dropped)
		}
		cancel()
		<-done
		n.want(t, "at its end", "new")
	})
}

// TestLoads: if runsc can load a kernel, it is told to, and a pod that is ready costs more.
func TestLoads(t *testing.T) {
	for _, loads := range []bool{false, true} {
		n := sleeping(map[string]time.Duration{"a": 10 * time.Second, "b": 20 * time.Second})
		n.loads = loads
		p := n.pool(3) // or one whose kernel is loaded
		p.look(t.Context())
		if loads {
			n.want(t, "with kernels", "a")
		} else {
			n.want(t, "without", "a", "b")
		}
		if n.loaded != loads {
			t.Errorf("told to load a kernel: %v, want %v", n.loaded, loads)
		}
	}
}

// TestWishes: pods that are always to be ready come first, and at once; those that are never to be are not. What is
// wished later holds for pods that sleep already.
func TestWishes(t *testing.T) {
	n := sleeping(map[string]time.Duration{
		"a": 0, "b": 10 * time.Second, "c": 20 * time.Second, "d": time.Hour, "e": time.Minute,
	})
	p := n.pool(2)
	p.Demand.Wish("uid-a", Always)
	p.Demand.Wish("uid-b", Never)
	p.look(t.Context())
	n.want(t, "at first", "a", "c")
	p.Demand.Wish("uid-d", Always)
	p.Demand.Wish("uid-a", Never)
	p.Demand.Wish("uid-b", Auto)
	p.look(t.Context())
	n.want(t, "other wishes", "b", "d")
	slices.Sort(n.dropped)
	if !slices.Equal(n.dropped, []string{ForNewer, ForPolicy}) {
		t.Errorf("dropped for %q", n.dropped)
	}
	if slices.Sort(n.news); !slices.Equal(n.news, []string{"a", "a", "b", "c", "c", "d"}) {
		t.Errorf("told of %q", n.news)
	}
	if len(p.Demand.wish) != 2 {
		t.Errorf("wishes are kept: %v", p.Demand.wish)
	}
}

// TestAwaitWishes: until it is known what policies wish, a pool makes nothing ready, and leaves what an earlier agent
// has made, unless memory is short.
func TestAwaitWishes(t *testing.T) {
	n := sleeping(map[string]time.Duration{"a": 10 * time.Second, "b": 20 * time.Second, "c": 30 * time.Second})
	n.asleep[0].Ready, n.asleep[1].Ready, n.asleep[2].Ready = false, true, true
	made := n.ready()
	p := n.poolFor(NewDemand(true), 1)
	p.look(t.Context())
	n.want(t, "before", made...)
	n.waiting = 1
	p.look(t.Context())
	n.want(t, "while a wake waits")
	n.waiting = 0
	p.Demand.WishesKnown()
	p.look(t.Context())
	n.want(t, "afterwards", "a")
}

// TestFailsFirst: a pod that comes first and cannot be made ready takes no place.
func TestFailsFirst(t *testing.T) {
	n := sleeping(map[string]time.Duration{"a": 10 * time.Second, "b": time.Hour})
	n.fails["b"] = errors.New("no")
	p := n.pool(1)
	p.Demand.Wish("uid-b", Always)
	for range 2 {
		p.look(t.Context())
	}
	n.want(t, "without it", "a")
}

// TestWokeOften: a pod that has woken often within an hour is ready before one that fell asleep later. What is known of
// its wakes is forgotten.
func TestWokeOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sleeping(map[string]time.Duration{"a": time.Minute, "b": 2 * time.Minute})
		p := n.pool(1)
		p.Demand.Woke("uid-b")
		p.look(t.Context())
		n.want(t, "one wake, and twice as long asleep", "a")
		for range 2 * mostWakes {
			p.Demand.Woke("uid-b")
		}
		p.look(t.Context())
		n.want(t, "many wakes", "b")
		if known := len(p.Demand.wakes["uid-b"]); known != mostWakes {
			t.Errorf("%d wakes are kept, want %d", known, mostWakes)
		}
		time.Sleep(wakesFor)
		p.look(t.Context())
		n.want(t, "an hour later", "a")
		p.Demand.Woke("uid-c")
		if len(p.Demand.wakes) != 1 {
			t.Errorf("wakes are kept of %d pods", len(p.Demand.wakes))
		}
	})
}

// TestGivesWay: pods that are ready give way, the oldest first, when the node's memory is short or a wake waits.
func TestGivesWay(t *testing.T) {
	n := sleeping(map[string]time.Duration{"a": 10 * time.Second, "b": 20 * time.Second, "c": 30 * time.Second})
	p := n.pool(3)
	p.look(t.Context())
	n.want(t, "with memory", "a", "b", "c")
	n.free = 100<<20 - 1
	p.look(t.Context())
	n.want(t, "one byte short", "a", "b")
	n.free = 100<<20 + CreatedCost - 1
	p.look(t.Context())
	n.want(t, "with less than one takes", "a", "b")
	n.waiting = 1
	p.look(t.Context())
	n.want(t, "while a wake waits")
	n.waiting, n.free = 0, 1<<30
	p.look(t.Context())
	n.want(t, "afterwards", "a", "b", "c")
	if !slices.Equal(n.dropped, []string{ForMemory, ForMemory, ForMemory}) {
		t.Errorf("dropped for %q", n.dropped)
	}
}

// TestUnknownMemory: if it is not known what is free, nothing is ready.
func TestUnknownMemory(t *testing.T) {
	n := sleeping(map[string]time.Duration{"a": time.Minute})
	p := n.pool(1)
	p.Available = func() (int64, error) { return 0, errors.New("no such file") }
	p.look(t.Context())
	n.want(t, "without knowing")
}

// TestOff: without a budget nothing is ready, and what an earlier agent has made is dropped.
func TestOff(t *testing.T) {
	n := sleeping(map[string]time.Duration{"a": time.Minute})
	n.asleep[0].Ready = true
	n.pool(0).Run(t.Context()) // it ends: there is nothing to keep
	n.want(t, "without a budget")
}

// TestFails: a pod that cannot be made ready is left alone for a while, and the others are made ready. One that wakes
// meanwhile is no failure.
func TestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sleeping(map[string]time.Duration{"a": 10 * time.Second, "b": 20 * time.Second, "c": 30 * time.Second})
		n.fails["a"], n.fails["b"] = errors.New("no"), sleep.ErrUnfit
		p := n.pool(3)
		p.look(t.Context())
		p.look(t.Context())
		n.want(t, "at first", "c")
		if len(n.made) != 2 { // a, once, and c
			t.Errorf("made: %v", n.made)
		}
		delete(n.fails, "a")
		time.Sleep(failedTime)
		p.look(t.Context())
		n.want(t, "later", "a", "c")
	})
}
