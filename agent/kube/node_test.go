package kube_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/idle"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/ready"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	shimsleep "diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
	"diapause.dev/storage"
)

// disk is what a node keeps across restarts of its agent, and the stores of all nodes.
type disk struct {
	mu       sync.Mutex
	journal  map[string]journal.Request // by request
	order    []string                   // of the requests
	spool    map[snapshot.Key]*storage.Manifest
	captures map[snapshot.Key]int // captures that reached the spool
	stores   *stores

	untrusted atomic.Bool // no key that the node trusts has signed a snapshot
}

func newDisk(s *stores) *disk {
	return &disk{
		journal: make(map[string]journal.Request), spool: make(map[snapshot.Key]*storage.Manifest),
		captures: make(map[snapshot.Key]int), stores: s,
	}
}

// stores are the snapshots in stores, by location.
type stores struct {
	mu  sync.Mutex
	all map[string]map[snapshot.Key]*storage.Manifest
	err error // why no store can be reached

	notes map[string][]byte // by location and name
}

func newStores() *stores {
	return &stores{all: make(map[string]map[snapshot.Key]*storage.Manifest), notes: make(map[string][]byte)}
}

func (s *stores) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// reachable returns why no store can be reached, or nil.
func (s *stores) reachable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stores) put(location string, m *storage.Manifest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.all[location] == nil {
		s.all[location] = make(map[snapshot.Key]*storage.Manifest)
	}
	s.all[location][m.Meta.Key] = m
	return nil
}

func (s *stores) get(location string, k snapshot.Key) (*storage.Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if m := s.all[location][k]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("snapshot %s: %w", k, storage.ErrNotFound)
}

// keys returns the snapshots in a store.
func (s *stores) keys(location string) []snapshot.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all[location]))
}

func (s *stores) remove(location string, k snapshot.Key, uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if isThe(s.all[location][k], uid) {
		delete(s.all[location], k)
	}
	return nil
}

// isThe reports whether a snapshot has that UID, or whether the UID is empty.
func isThe(m *storage.Manifest, uid string) bool {
	return m != nil && (uid == "" || m.Meta.UID == uid)
}

// step is a step of a checkpoint at which a test may block it, or make it fail.
type step string

const (
	stepAccept    step = "accept"    // before it is journaled
	stepCapture   step = "capture"   // journaled, and not yet in the spool
	stepStop      step = "stop"      // in the spool, and the pod is still to be stopped
	stepReplicate step = "replicate" // the pod runs on, or was stopped
)

// fakeNode is an agent whose checkpoints go as a test decides. It implements the parts of kube.Node.
type fakeNode struct {
	sleeps    func(uid string) error // puts a pod to sleep; nil: none can
	wakeToEnd atomic.Bool            // the pod that was put to sleep last is woken to be ended

	disk    *disk
	facts   snapshot.Facts
	ran     snapshot.Facts // of the sandboxes; zero: as facts
	cluster kube.Services
	boot    context.Context // done when the agent is killed
	die     func()          // kills it

	moving  sync.Mutex // is held by a replication
	mu      sync.Mutex
	running map[string]int // checkpoints by pod
	most    int            // checkpoints of one pod at once
	// at, if set, is called at each step. If it returns an error, the checkpoint fails.
	at func(ctx context.Context, s step, o checkpoint.Options) error
	// asleep are the pods that sleep, by their UIDs; guarded by mu.
	asleep map[string]time.Time
	ready  map[string]bool       // pods that are ready to wake, by their UIDs; guarded by mu
	wishes map[string]ready.Wish // by UIDs of pods; guarded by mu
	// asleepOn are the pods that sleep, by the UIDs of the snapshots of their sleeps, likewise.
	asleepOn map[string]string
	// ended are the pods that ended in their sleep, likewise.
	ended map[string]snapshot.PodRef
	// toSleep: what is saved is saved to sleep.
	toSleep atomic.Bool
	// waits says what wakes wait for, likewise.
	waits map[string]string
	// unwoken says why wakes have failed, likewise.
	unwoken map[string]string
}

// holdup makes every checkpoint of a node wait at a step until release is closed.
type holdup struct {
	step             step
	reached, release chan struct{} // reached is closed when the first checkpoint is there
	once             sync.Once
}

func holdAt(s step) *holdup {
	return &holdup{step: s, reached: make(chan struct{}), release: make(chan struct{})}
}

// set is an edit for world.start.
func (h *holdup) set(n *fakeNode, _ *kube.Config) {
	n.at = func(_ context.Context, s step, _ checkpoint.Options) error {
		if s == h.step {
			h.once.Do(func() { close(h.reached) })
			<-h.release
		}
		return nil
	}
}

var errKilled = errors.New("killed")

// factsOf returns the facts of the node's sandboxes.
func (n *fakeNode) factsOf() snapshot.Facts {
	if n.ran.RunscVersion != "" {
		return n.ran
	}
	return n.facts
}

// Sleep puts the pod to sleep that the target names.
func (n *fakeNode) Sleep(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error) {
	if n.sleeps == nil {
		return nil, errors.New("the test has not said which pods sleep")
	}
	n.wakeToEnd.Store(o.WakeToEnd)
	return nil, n.sleeps(o.Target)
}

// unused implements idle.Meter and idle.Gauge. A pod that sleeps has no sandbox, and so no counters.
type unused struct {
	node *fakeNode
	uid  string
}

func (u unused) Open(_ context.Context, pod snapshot.PodRef, _ []traffic.Ignored) (idle.Gauge, error) {
	return unused{u.node, pod.UID}, nil
}

func (u unused) Read() (usage idle.Usage, err error) {
	if _, asleep := u.node.AsleepPod(u.uid); asleep {
		err = errors.New("its sandbox has ended")
	}
	return usage, err
}

func (unused) Busy() bool             { return false }
func (unused) Memory() (int64, error) { return 1 << 20, nil }

func (unused) Owes(context.Context, time.Duration) (bool, error) { return false, nil }

func (unused) Senders(context.Context) ([]traffic.Count, error) { return nil, nil }

func (n *fakeNode) Wake(context.Context, string, string) (sleep.Woken, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.asleep)
	return sleep.Woken{}, nil
}

func (n *fakeNode) AsleepPod(uid string) (m shimsleep.Mark, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, ok := n.asleep[uid]
	return shimsleep.Mark{UID: uid, Since: since, Ready: n.ready[uid]}, ok
}

// Needed implements ending.Needing.
func (n *fakeNode) Needed(_ snapshot.Key, uid string) (pod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asleepOn[uid]
}

// ended implements ending.Ended.
type ended struct{ *fakeNode }

// EndedAsleep implements ending.Ended.
func (n ended) EndedAsleep(_ context.Context, _ snapshot.Key, uid string) (snapshot.PodRef, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod, ok := n.ended[uid]
	return pod, ok, nil
}

// Forget implements ending.Ended.
func (n ended) Forget(pod snapshot.PodRef) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.ended, func(_ string, p snapshot.PodRef) bool { return p == pod })
	return nil
}

// fallAsleep saves a pod and has it sleep on the snapshot, whose name it returns.
func (n *fakeNode) fallAsleep(ctx context.Context, uid string) (string, error) {
	n.toSleep.Store(true)
	defer n.toSleep.Store(false)
	f, err := n.Checkpoint(ctx, ctx, checkpoint.Options{Target: uid, NoWait: true})
	if err != nil {
		return "", err
	}
	n.need(f.Manifest.Meta.UID, uid)
	n.asleepFrom(uid, time.Now())
	n.cluster.Sleeps.Slept(podByUID(uid))
	return f.Manifest.Meta.Name, nil
}

// asleepFrom has a pod sleep since a time.
func (n *fakeNode) asleepFrom(uid string, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asleep == nil {
		n.asleep = make(map[string]time.Time)
	}
	n.asleep[uid] = since
}

// need has a pod of the node need a snapshot, by the UIDs of both.
func (n *fakeNode) need(s, pod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asleepOn == nil {
		n.asleepOn = make(map[string]string)
	}
	n.asleepOn[s] = pod
}

// wake ends all sleeps.
func (n *fakeNode) wake(uid string) {
	n.mu.Lock()
	clear(n.asleep)
	clear(n.asleepOn)
	n.mu.Unlock()
	n.cluster.Sleeps.Woke(podByUID(uid), "packet", time.Second)
}

func (n *fakeNode) Waiting(uid string) (why string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	why, ok = n.waits[uid]
	return why, ok
}

func (n *fakeNode) Unwoken(uid string) (why string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	why, ok = n.unwoken[uid]
	return why, ok
}

func (n *fakeNode) Wish(uid string, w ready.Wish) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wishes == nil {
		n.wishes = make(map[string]ready.Wish)
	}
	n.wishes[uid] = w
}

func (n *fakeNode) WishesKnown() {}

// wish returns whether a pod is to be ready when it sleeps.
func (n *fakeNode) wish(uid string) ready.Wish {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.wishes[uid], ready.Auto)
}

func (n *fakeNode) Facts(context.Context) (snapshot.Facts, error) { return n.facts, nil }

func (n *fakeNode) Requests() ([]journal.Request, error) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	var out []journal.Request
	for _, id := range n.disk.order {
		out = append(out, n.disk.journal[id])
	}
	return out, nil
}

// recover finishes what an earlier agent left, as an agent does at its start.
func (n *fakeNode) recover() {
	all, _ := n.Requests() // does not fail
	for _, q := range all {
		switch {
		case q.Stage == journal.StageSpooled && q.Stop && !q.Stopped && q.RunsOn == "":
			q.RunsOn = "the agent ended before the sandbox was stopped"
			n.advance(q)
			n.replicate(q)
		case q.Stage == journal.StageSpooled:
			n.replicate(q)
		case q.Stage == journal.StageAccepted && n.disk.manifest(q.Key) != nil:
			q.Stage = journal.StageSpooled
			n.advance(q)
			n.replicate(q)
		case q.Stage == journal.StageAccepted:
			q.Stage, q.Error = journal.StageFailed, "the agent ended before the snapshot was complete"
			n.advance(q)
		}
	}
}

func (d *disk) manifest(k snapshot.Key) *storage.Manifest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spool[k]
}

// advance journals a request and tells the cluster, unless the agent has been killed.
func (n *fakeNode) advance(q journal.Request) {
	if n.boot.Err() != nil {
		return
	}
	n.disk.mu.Lock()
	if _, ok := n.disk.journal[q.ID]; !ok {
		n.disk.order = append(n.disk.order, q.ID)
	}
	n.disk.journal[q.ID] = q
	n.disk.mu.Unlock()
	n.cluster.Changed(q)
}

func (n *fakeNode) replicate(q journal.Request) error {
	m := n.disk.manifest(q.Key)
	if m == nil || n.boot.Err() != nil {
		return errKilled
	}
	if err := n.disk.stores.put(q.Store, m); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrNotReplicated, err)
	}
	q.Stage = journal.StageReplicated
	n.advance(q)
	return nil
}

func (n *fakeNode) step(ctx context.Context, s step, o checkpoint.Options) error {
	if n.boot.Err() != nil {
		return errKilled
	}
	if n.at != nil {
		if err := n.at(ctx, s, o); err != nil {
			return err
		}
	}
	if n.boot.Err() != nil {
		return errKilled
	}
	return context.Cause(ctx)
}

func (n *fakeNode) count(pod string, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running[pod] += by
	n.most = max(n.most, n.running[pod])
}

// purpose returns what a snapshot is for.
func (n *fakeNode) purpose(o checkpoint.Options) snapshot.Purpose {
	switch {
	case o.Ending:
		return snapshot.ForTermination
	case n.toSleep.Load():
		return snapshot.ForSleep
	}
	return snapshot.ForCheckpoint
}

func (n *fakeNode) Checkpoint(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error) {
	if err := n.step(ctx, stepAccept, o); err != nil {
		return nil, err
	}
	n.count(o.Target, 1)
	captured := sync.OnceFunc(func() { n.count(o.Target, -1) })
	defer captured()
	pod := podByUID(o.Target)
	if o.Name == "" && o.Named == nil {
		o.Name = n.cluster.Checkpoints.Name()
	} else if o.Named != nil {
		name, err := o.Named()
		if err != nil {
			return nil, err
		}
		o.Name = name
	}
	d, err := n.cluster.Checkpoints.Describe(ctx, pod)
	if err != nil {
		return nil, err
	}
	q := journal.Request{
		ID: "r-" + o.Name, SnapshotUID: "s-" + o.Name, Key: snapshot.Key{Namespace: pod.Namespace, Name: o.Name}, Pod: pod,
		Stage: journal.StageAccepted, Store: d.Store, Scope: d.Scope, Created: time.Now(), Stop: o.Stop,
		NamespaceUID: d.NamespaceUID, Purpose: n.purpose(o),
	}
	q.Inheritable = d.Inheritable && q.Purpose == snapshot.ForSleep
	n.advance(q)
	if o.Stop {
		err = n.cluster.Checkpoints.Confirmed(ctx, pod, q.Key)
	}
	if err == nil {
		err = n.step(ctx, stepCapture, o)
	}
	if err != nil {
		q.Stage, q.Error = journal.StageFailed, err.Error()
		n.advance(q)
		return nil, err
	}
	m := &storage.Manifest{Meta: snapshot.Meta{
		Key: q.Key, UID: q.SnapshotUID, Scope: q.Scope, Facts: n.factsOf(), Purpose: q.Purpose, Inheritable: q.Inheritable,
		Origin: snapshot.Origin{
			Pod: pod.Name, PodUID: pod.UID, ServiceAccount: d.ServiceAccount, Group: d.Group,
			SpecHash: d.SpecHash, Cluster: d.Cluster, NamespaceUID: d.NamespaceUID,
		},
	}}
	n.disk.mu.Lock()
	n.disk.spool[q.Key] = m
	n.disk.captures[q.Key]++
	n.disk.mu.Unlock()
	q.Stage = journal.StageSpooled
	n.advance(q)
	stopErr := n.stop(life, &q, o)
	captured()
	if n.boot.Err() == nil && o.Spooled != nil {
		o.Spooled(&snapshots.Found{Manifest: m, OnNode: true}, d.NetAdmin.Warning())
	}
	if stopErr != nil {
		return nil, errors.Join(stopErr, n.replicate(q)) // the real replication goes on by itself
	}
	n.moving.Lock()
	defer n.moving.Unlock()
	if err := n.step(life, stepReplicate, o); err != nil {
		return nil, fmt.Errorf("%w: %w", errkind.ErrNotReplicated, err)
	}
	if err := n.replicate(q); err != nil && !o.NoWait {
		return nil, err
	}
	return &snapshots.Found{Manifest: m, OnNode: true, Replicated: true}, nil
}

// stop stops a pod if its checkpoint asks for that.
func (n *fakeNode) stop(ctx context.Context, q *journal.Request, o checkpoint.Options) error {
	if !q.Stop {
		return nil
	}
	err := n.step(ctx, stepStop, o)
	if errors.Is(err, errKilled) {
		return err
	}
	if q.Stopped = err == nil; err != nil {
		q.RunsOn = err.Error()
	}
	n.advance(*q)
	return err
}

// Remove removes nothing from a bucket: a node has no right to that.
func (n *fakeNode) Remove(ctx context.Context, r snapshots.Removal) error {
	k, uid, location := r.ID.Key, r.ID.UID, r.Location
	switch {
	case r.From == snapshots.FromStore:
		return n.removeStored(ctx, k, uid, location)
	case r.From == snapshots.FromSpool && r.InUse == snapshots.InUseIgnored:
		return n.withdraw(k, uid)
	case r.From == snapshots.FromSpool:
		return n.forget(k, uid)
	case n.boot.Err() != nil:
		return errKilled
	}
	if err := n.forget(k, uid); err != nil {
		return err
	}
	if rules.InBucket(location) {
		return storage.ErrDenied
	}
	return n.disk.stores.remove(location, k, uid)
}

func (n *fakeNode) withdraw(k snapshot.Key, uid string) error {
	n.moving.Lock()
	defer n.moving.Unlock()
	return n.forget(k, uid)
}

// Detach implements request.Snapshots.
func (n *fakeNode) Detach(_ context.Context, k snapshot.Key, uid string) error {
	n.moving.Lock()
	defer n.moving.Unlock()
	all, _ := n.Requests() // does not fail
	for _, q := range all {
		if q.Key == k && q.SnapshotUID == uid && q.Stage == journal.StageSpooled {
			q.Stage, q.Error = journal.StageFailed, "detached"
			n.advance(q)
		}
	}
	return nil
}

func (n *fakeNode) forget(k snapshot.Key, uid string) error {
	if pod := n.Needed(k, uid); pod != "" {
		return fmt.Errorf("%w: pod %s sleeps", errkind.ErrInUse, pod)
	}
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if isThe(n.disk.spool[k], uid) {
		delete(n.disk.spool, k)
	}
	return nil
}

func (n *fakeNode) HasLocal(_ context.Context, k snapshot.Key) (bool, error) {
	return n.disk.manifest(k) != nil, nil
}

func (n *fakeNode) ProbeStore(_ context.Context, _ string) error { return n.disk.stores.reachable() }

func (n *fakeNode) Manifest(_ context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	if m := n.disk.manifest(k); m != nil {
		return m, nil
	}
	return n.disk.stores.get(location, k)
}

func (n *fakeNode) TrustedManifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	m, err := n.Manifest(ctx, k, location)
	if err == nil && n.disk.untrusted.Load() {
		return nil, fmt.Errorf("snapshot %s is signed by SHA256:forger: %w", k, storage.ErrUntrusted)
	}
	return m, err
}

// manifestOf returns the manifest of a request's snapshot.
func manifestOf(q journal.Request, account, hash string) *storage.Manifest {
	return &storage.Manifest{Meta: snapshot.Meta{
		Key: q.Key, UID: q.SnapshotUID,
		Origin: snapshot.Origin{Pod: q.Pod.Name, PodUID: q.Pod.UID, ServiceAccount: account, SpecHash: hash},
	}}
}
