package sleep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
	"diapause.dev/storage"
)

// node is all that sleeps work with, of a node with one pod.
type node struct {
	orders   []sleep.Order
	refuse   error // of the order to fall asleep
	restless error
	marks    []sleep.Mark
	dropped  []string

	remembered []string // requests
	deleted    []snapshot.Key
	slept      []string // pods that the cluster was told of
	found      *snapshots.Found
	pool       pool
	on         []string // pods that sleep on, as the cluster was told
}

var pod = &cri.Pod{ID: "sandbox", Namespace: "default", Name: "pod", UID: "uid", Runtime: cri.RuntimeType}

func (n *node) Checkpoint(ctx, _ context.Context, o checkpoint.Options) (*snapshots.Found, error) {
	if err := o.Handover.Watch(ctx, pod, []string{"container"}); err != nil {
		return nil, err
	}
	if err := o.Handover.Take(ctx, pod, "holder", snapshots.ID{UID: "new"}); err != nil {
		o.Handover.Leave(ctx, pod)
		return nil, err
	}
	return n.found, nil
}

func (n *node) PrepareWake(context.Context, snapshots.ID, snapshot.PodRef, string) (string, string, error) {
	return "request", "/dir", nil
}

func (n *node) Remember(request string) error {
	n.remembered = append(n.remembered, request)
	return nil
}

func (n *node) DropWake(request string, _ error)               { n.dropped = append(n.dropped, request) }
func (n *node) All() []sleep.Mark                              { return n.marks }
func (n *node) Find(context.Context, string) (*cri.Pod, error) { return pod, nil }
func (n *node) Slept(p snapshot.PodRef)                        { n.slept = append(n.slept, p.UID) }
func (n *node) Woke(snapshot.PodRef, string, time.Duration)    {}
func (n *node) WakeFailed(snapshot.PodRef, error)              {}
func (n *node) SleepsOn(p snapshot.PodRef)                     { n.on = append(n.on, p.UID) }
func (n *node) OrderSleep(_ context.Context, _ string, o sleep.Order) error {
	n.orders = append(n.orders, o)
	if o.Verb == sleep.Fall {
		return n.refuse
	}
	return nil
}

func (n *node) Restless(context.Context, string) error { return n.restless }

func (n *node) Remove(_ context.Context, r snapshots.Removal) error {
	k := r.ID.Key
	n.deleted = append(n.deleted, k)
	if k.Name == "gone" {
		return storage.ErrNotFound
	}
	return nil
}

func (n *node) PodAsleep(sandbox string) (pod snapshot.PodRef, ok bool) {
	i := slices.IndexFunc(n.marks, func(m sleep.Mark) bool { return m.Sandbox == sandbox })
	if i < 0 {
		return pod, false
	}
	return snapshot.PodRef{UID: n.marks[i].UID}, true
}

// pool is a pool that notes which pods were woken.
type pool struct{ woke []string }

func (p *pool) Changed()        {}
func (p *pool) Woke(uid string) { p.woke = append(p.woke, uid) }

type noMetrics struct{}

func (noMetrics) Slept(error)         {}
func (noMetrics) Woke(*localv1.Woken) {}
func (noMetrics) WakeFailed()         {}

// newSleeps returns the sleeps of a node.
func newSleeps(t *testing.T) (*Sleeps, *node) {
	t.Helper()
	n := &node{found: &snapshots.Found{Manifest: &storage.Manifest{}}}
	n.found.Manifest.Meta.UID = "new"
	n.found.Manifest.Meta.Origin = snapshot.Origin{SandboxID: pod.ID, PodUID: "uid"}
	return New(Config{
		Checkpoints: n, Restores: n, Runtime: n, Waker: NewWaker(n, n), Ready: &n.pool, Cluster: n, Metrics: noMetrics{},
		Logger: slog.New(slog.DiscardHandler),
	}), n
}

// newCollector returns the collector of a node, whose life ends when wait is called.
func newCollector(t *testing.T) (c *Collector, n *node, wait func()) {
	t.Helper()
	n, life := &node{}, lifetime.New(t.Context())
	log := slog.New(slog.DiscardHandler)
	return NewCollector(n, journaltest.Open(t, t.TempDir()), NewWaker(n, n), life, log), n, life.Wait
}

func (n *node) verbs() (all []sleep.Verb) {
	for _, o := range n.orders {
		all = append(all, o.Verb)
	}
	return all
}

func TestSleep(t *testing.T) {
	s, n := newSleeps(t)
	if _, err := s.Sleep(t.Context(), t.Context(), checkpoint.Options{Target: "pod"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(n.verbs(), []sleep.Verb{sleep.Watch, sleep.Fall}) || !slices.Equal(n.slept, []string{"uid"}) {
		t.Errorf("orders %q, told of %q", n.verbs(), n.slept)
	}
	if !slices.Equal(n.remembered, []string{"request"}) {
		t.Errorf("remembered %q", n.remembered)
	}
	if fall := n.orders[1]; fall.Holder != "holder" || fall.Image != "/dir" {
		t.Errorf("order %+v", fall)
	}
}

// TestSleepRefused has the shim refuse: what was prepared for the wake is dropped, unless only the answer was lost.
func TestSleepRefused(t *testing.T) {
	s, n := newSleeps(t)
	n.refuse = sleep.ErrTraffic
	if _, err := s.Sleep(t.Context(), t.Context(), checkpoint.Options{}); !errors.Is(err, sleep.ErrTraffic) {
		t.Errorf("error %v", err)
	}
	if !slices.Equal(n.dropped, []string{"request"}) || len(n.slept)+len(n.remembered) > 0 || n.verbs()[2] != sleep.Stay {
		t.Errorf("dropped %q, orders %q, told of %q", n.dropped, n.verbs(), n.slept)
	}
	s, n = newSleeps(t)
	n.refuse, n.marks = context.DeadlineExceeded, []sleep.Mark{{Sandbox: pod.ID, UID: "uid"}}
	if _, err := s.Sleep(t.Context(), t.Context(), checkpoint.Options{}); err != nil || len(n.dropped) > 0 ||
		len(n.remembered) != 1 {
		t.Errorf("error %v, dropped %q, remembered %q", err, n.dropped, n.remembered)
	}
}

// TestSleepRestless has a container be about to start: the pod is watched no longer, and does not fall asleep.
func TestSleepRestless(t *testing.T) {
	s, n := newSleeps(t)
	n.restless = sleep.ErrInUse
	if _, err := s.Sleep(t.Context(), t.Context(), checkpoint.Options{}); !errors.Is(err, sleep.ErrInUse) {
		t.Errorf("error %v", err)
	}
	if slices.Contains(n.verbs(), sleep.Fall) || len(n.slept) > 0 {
		t.Errorf("orders %q, told of %q", n.verbs(), n.slept)
	}
}

// TestEarlier removes the snapshots of sleeps that an earlier agent has made, once their pods are awake.
func TestEarlier(t *testing.T) {
	c, n, _ := newCollector(t)
	n.marks = []sleep.Mark{{Sandbox: "asleep"}}
	for id, r := range map[string]journal.Record{
		"01": {UID: "awake", Passing: true, SandboxID: "awake", Stage: journal.StageReplicated},
		"02": {UID: "asleep", Passing: true, SandboxID: "asleep", Stage: journal.StageReplicated},
		"03": {UID: "asked-for", SandboxID: "awake", Stage: journal.StageReplicated},
		"04": {
			UID: "says-so", Passing: true, SandboxID: "awake", Stage: journal.StageReplicated, Purpose: snapshot.ForSleep,
		},
	} {
		r.ID, r.Key = id, snapshot.Key{Namespace: "default", Name: r.UID}
		if err := c.journal.Put(&r); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		c.RemoveEarlier(t.Context())
	}
	if want := []snapshot.Key{{Namespace: "default", Name: "awake"}}; !slices.Equal(n.deleted, want) {
		t.Errorf("removed %v, want %v", n.deleted, want)
	}
}

// TestFormer removes the snapshots of former sleeps: those of the same pod that were given no name and are in their
// store. Each is removed once. As long as the newest snapshot is not in that store, all of them stay.
func TestFormer(t *testing.T) {
	c, n, wait := newCollector(t)
	for i, r := range []journal.Record{
		{UID: "a", SandboxID: pod.ID},
		{UID: "gone", SandboxID: pod.ID},
		{UID: "here", SandboxID: pod.ID, Stage: journal.StageSpooled},
		{UID: "named", SandboxID: pod.ID},
		{UID: "other", SandboxID: "other"},
		{UID: "before", SandboxID: "before", PodUID: "uid"},
		{UID: "elsewhere", SandboxID: pod.ID, Store: "dir:/elsewhere"},
		{UID: "new", SandboxID: pod.ID, PodUID: "uid", Stage: journal.StageSpooled},
		{UID: "newer", SandboxID: pod.ID, PodUID: "uid"},
	} {
		r.ID, r.Key = r.UID, snapshot.Key{Namespace: "default", Name: r.UID}
		r.Created, r.Sleep, r.Passing = time.Unix(int64(i), 0), true, r.UID != "named"
		if r.Stage == "" {
			r.Stage = journal.StageReplicated
		}
		if err := c.journal.Put(&r); err != nil {
			t.Fatal(err)
		}
	}
	c.Changed(c.journal.Get("new"))
	if wait(); len(n.deleted) > 0 {
		t.Errorf("removed %v for one that is on the node alone", n.deleted)
	}
	newest := c.journal.Get("new")
	newest.Stage = journal.StageReplicated
	for range 2 {
		c.Changed(newest)
		wait()
	}
	slices.SortFunc(n.deleted, func(a, b snapshot.Key) int { return len(a.Name) - len(b.Name) })
	want := []snapshot.Key{
		{Namespace: "default", Name: "a"}, {Namespace: "default", Name: "gone"}, {Namespace: "default", Name: "before"},
	}
	if !slices.Equal(n.deleted, want) {
		t.Errorf("removed %v, want %v", n.deleted, want)
	}
}

// TestReady: who keeps pods ready is told of a wake, and the cluster of pods that are ready.
func TestReady(t *testing.T) {
	s, n := newSleeps(t)
	n.marks = []sleep.Mark{{Sandbox: "a", UID: "uid-a", Ready: true}, {Sandbox: "b", UID: "uid-b"}}
	for _, sandbox := range []string{"a", "b", "gone"} {
		s.ReadyChanged(sandbox)
	}
	s.Woke(snapshot.PodRef{UID: "uid-a"}, "a", nil)
	if !slices.Equal(n.on, []string{"uid-a", "uid-b"}) || !slices.Equal(n.pool.woke, []string{"uid-a"}) {
		t.Errorf("told of %q, and that %q were woken", n.on, n.pool.woke)
	}
}

// TestSleepsOn: why a pod that sleeps could not be woken is known until it is awake, has ended, or no longer sleeps.
func TestSleepsOn(t *testing.T) {
	for name, end := range map[string]func(s *Sleeps, n *node, p snapshot.PodRef){
		"woken": func(s *Sleeps, _ *node, p snapshot.PodRef) { s.Woke(p, "sandbox", nil) },
		"ended": func(s *Sleeps, _ *node, p snapshot.PodRef) { s.WakeFailed(p, "sandbox", errors.New("damaged")) },
		"gone": func(s *Sleeps, n *node, _ snapshot.PodRef) {
			n.marks = []sleep.Mark{{Sandbox: "other", UID: "other"}}
			s.SleepsOn(snapshot.PodRef{UID: "other"}, "other", errors.New("no such file: app.db"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := newSleeps(t)
			p := snapshot.PodRef{Namespace: "default", Name: "pod", UID: "uid"}
			n.marks = []sleep.Mark{{Sandbox: "sandbox", UID: "uid"}}
			s.SleepsOn(p, "sandbox", errors.New("no such file: app.log"))
			if why, ok := s.Unwoken("uid"); !ok || why != "no such file: app.log" {
				t.Errorf("could not be woken: %q, %v", why, ok)
			}
			end(s, n, p)
			if why, ok := s.Unwoken("uid"); ok {
				t.Errorf("could not be woken still: %q", why)
			}
		})
	}
}
