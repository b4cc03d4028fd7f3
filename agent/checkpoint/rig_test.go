package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"diapause.dev/agent/backlog"
	"diapause.dev/agent/budget"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// rig is a node with one sandbox. Its agent can be killed, and then there is a next one.
type rig struct {
	t         *testing.T
	dir       string
	cluster   Cluster // of the agents to come, or nil
	storeAway bool    // for the agents to come
	memory    *budget.Memory
	disk      *budget.Disk
	backlog   int // limit of snapshots that wait for their store; 0: none

	*Checkpoints
	sandbox *sandbox
	runtime *runtime // how the agent that lives now sees containerd
	close   func()

	mu   sync.Mutex
	told []*journal.Record
}

// newRig returns a rig whose sandbox runs.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), sandbox: &sandbox{leases: true}}
	r.memory = budget.NewMemory(1<<30, func(int64, int) {})
	r.disk = budget.NewDisk(r.dir, 0)
	r.sandbox.safe = r.hasSnapshot
	r.next()
	t.Cleanup(func() { r.close() })
	return r
}

// next starts the next agent. Only what is on disk is left of the previous one.
func (r *rig) next() {
	r.t.Helper()
	if r.close != nil {
		r.close()
	}
	store := "dir:" + r.dir + "/state/store"
	if r.storeAway {
		store = "dir:" + r.dir + "/away"
	}
	bell, life := snapshots.NewBell(), lifetime.New(r.t.Context())
	stores, err := snapshots.Open(r.t.Context(), snapshots.Options{
		StateDir: r.dir + "/state", Store: store, Opened: bell.Ring, Logger: journaltest.Quiet,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.close = func() {
		r.close = nil
		life.End(errkind.ErrStopping)
		life.Wait()
		if err := stores.Close(); err != nil {
			r.t.Error(err)
		}
	}
	j := journaltest.Open(r.t, r.journalDir())
	if err := os.MkdirAll(r.stoppedDir(), 0o700); err != nil {
		r.t.Fatal(err)
	}
	r.runtime = &runtime{sandbox: r.sandbox}
	unsettled, sandboxes := journal.NewUnsettled(), keylock.New()
	catalog := snapshots.NewCatalog(snapshots.NewRemover(stores, snapshots.OpenReaders(stores, life), nil), j,
		backlog.New(func(map[string]int) {}), r.changed, bell.Ring)
	r.Checkpoints = New(Config{
		Requests: requests.Dir(r.dir + "/requests"), SidecarSocket: r.dir + "/sidecars", StoppedDir: r.stoppedDir(),
		Arena: 1 << 20, Memory: r.memory, Disk: r.disk,
		Replication: budget.NewReplication(0, r.backlog, Waiting(j, stores.Spool())),
		VolumeLimit: 1 << 20, CaptureTime: time.Minute, WorkloadSaves: true, Node: "node", Runtime: r.runtime,
		Journal: j, Unsettled: unsettled, Sandboxes: sandboxes, Stores: stores, Catalog: catalog,
		Replicator: snapshots.NewReplicator(catalog, unsettled, sandboxes, bell), Lineage: snapshots.NewLineage(),
		Facts:    func(context.Context, int) (snapshot.Facts, error) { return snapshot.Facts{}, nil },
		Sessions: func(string) bool { return false },
		Load: func(context.Context, string, func(int64, int64)) (bool, error) {
			return false, nil
		},
		Changed: r.changed, Cluster: r.cluster, Life: life, Metrics: noMetrics{}, Logger: journaltest.Quiet,
	})
	r.runtime.deliver = r.Sidecar
}

// with has the agent, which has no request under way, work with something else.
func (r *rig) with(change func(c *Config)) {
	c := r.Config
	c.Cluster = r.cluster
	change(&c)
	r.Checkpoints = New(c)
	r.runtime.deliver = r.Sidecar
}

// underWay returns the checkpoint of a request that was accepted. The sandbox's lock is not held.
func (r *rig) underWay(rec *journal.Record, o Options) *checkpoint {
	o.Progress = func(string, int64, int64) {}
	pod, _ := r.sandbox.pod()
	return newCheckpoint(r.Checkpoints, accepted{o: o, log: r.log, rec: rec, pod: pod}, newStopwatch())
}

func (r *rig) journalDir() string { return filepath.Join(r.dir, "journal") }
func (r *rig) stoppedDir() string { return filepath.Join(r.dir, "stopped") }

// noMetrics discards metrics.
type noMetrics struct{}

func (noMetrics) Checkpoint(error, time.Duration, []snapshot.Stage) {}

// changed records what the cluster is told. If that is not true, it notes a wrongdoing.
func (r *rig) changed(rec *journal.Record) {
	safe := r.hasSnapshot(rec)
	switch {
	case rec.Stage == journal.StageFailed && safe:
		r.sandbox.wrong("the cluster is told that request %s failed, and its snapshot is safe", rec.ID)
	case rec.Stage == journal.StageSpooled && !safe:
		r.sandbox.wrong("the cluster is told of a snapshot of request %s that is not there", rec.ID)
	case rec.Stopped && r.sandbox.lives():
		r.sandbox.wrong("the cluster is told that request %s has stopped a sandbox that lives", rec.ID)
	case rec.RunsOn != "" && r.sandbox.isKilled():
		r.sandbox.wrong("the cluster is told that a sandbox runs on which request %s has killed", rec.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, rec.Clone())
}

// last returns the last record of a request that the cluster was told about, or nil.
func (r *rig) last(request string) (last *journal.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.told {
		if rec.ID == request {
			last = rec
		}
	}
	return last
}

// hasSnapshot reports whether the snapshot of a request is whole in the spool. Another snapshot with its key does not
// count.
func (r *rig) hasSnapshot(rec *journal.Record) bool {
	if !rec.Named() {
		return false
	}
	m, err := r.Stores.Spool().Manifest(context.Background(), rec.Key)
	return err == nil && m.Meta.UID == rec.UID
}

// put writes a snapshot with a UID into the spool.
func (r *rig) put(k snapshot.Key, uid string) {
	r.t.Helper()
	w, err := r.Stores.Spool().NewWriter(r.t.Context(), k, storage.WriterOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := w.File("pages.img").Chunk([]byte("pages")); err != nil {
		r.t.Fatal(err)
	}
	if _, err := w.Commit(r.t.Context(), snapshot.Meta{Key: k, UID: uid, Created: time.Unix(1, 0)}); err != nil {
		r.t.Fatal(err)
	}
}

// manifest returns the path of a snapshot's manifest in the spool.
func (r *rig) manifest(k snapshot.Key) string {
	return filepath.Join(r.Stores.SpoolDir(), k.Namespace, "snapshots", k.Name, "manifest")
}

// damage changes a bit of a snapshot's manifest.
func (r *rig) damage(k snapshot.Key) {
	r.t.Helper()
	b, err := os.ReadFile(r.manifest(k))
	if err != nil {
		r.t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(r.manifest(k), b, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// withoutJournal calls f while nothing can be written to the journal.
func (r *rig) withoutJournal(f func()) {
	r.t.Helper()
	defer r.breakJournal()()
	f()
}

// breakJournal makes writes to the journal fail until mend is called.
func (r *rig) breakJournal() (mend func()) {
	r.t.Helper()
	away := r.journalDir() + "-away"
	if err := os.Rename(r.journalDir(), away); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(away, r.journalDir()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// settled settles what is owed, as SettleLoop does, and checks that nothing is left.
func (r *rig) settled() {
	r.t.Helper()
	for _, rec := range r.Unsettled.List() {
		r.settler.settleInTurn(r.t.Context(), rec)
	}
	if left := r.Unsettled.List(); len(left) > 0 {
		r.t.Errorf("not settled: %+v", left[0])
	}
}

// isSound checks what must hold in the end, whatever has happened before.
func (r *rig) isSound() {
	r.t.Helper()
	for _, wrong := range r.sandbox.wrongs() {
		r.t.Error(wrong)
	}
	if state, _ := r.sandbox.now(); state == paused {
		r.t.Error("the sandbox stays paused")
	}
	onDisk := journaltest.Open(r.t, r.journalDir())
	for _, rec := range r.Journal.Records() {
		r.isSoundRecord(rec)
		if disk := onDisk.Get(rec.ID); disk == nil || disk.Request() != request(rec) {
			r.t.Errorf("on disk: %+v, in memory: %+v", disk, rec)
		}
	}
}

// request returns a record as if it had been read from disk: without a monotonic time.
func request(rec *journal.Record) journal.Request {
	q := rec.Request()
	q.Created = q.Created.Round(0).UTC()
	return q
}

func (r *rig) isSoundRecord(rec *journal.Record) {
	r.t.Helper()
	safe := r.hasSnapshot(rec)
	switch {
	case rec.Stage == journal.StageAccepted || rec.Stage == journal.StagePaused:
		r.t.Errorf("the journal leaves the request %s", rec.Stage)
	case (rec.Stage == journal.StageFailed) == safe:
		r.t.Errorf("the journal says %s (%s), and the snapshot is safe: %v", rec.Stage, rec.Error, safe)
	case rec.Stage == journal.StageFailed && rec.Error == "":
		r.t.Error("the journal does not say why the request failed")
	case rec.Stop && safe && rec.Stopped == (rec.RunsOn != ""):
		r.t.Errorf("stopped: %v, and it runs on because of %q", rec.Stopped, rec.RunsOn)
	case rec.Stopped && r.sandbox.lives():
		r.t.Error("the journal says that the sandbox was stopped, and it lives")
	}
	told := r.last(rec.ID)
	if told == nil || told.Stage != rec.Stage || told.Stopped != rec.Stopped || told.RunsOn != rec.RunsOn ||
		told.Error != rec.Error {
		r.t.Errorf("the journal says %+v, and the cluster was told %+v", rec, told)
	}
}

// errFault is the error of a call of containerd that fails.
var errFault = errors.New("containerd does not answer")

// crash is the value with which a killed agent panics.
type crash struct{}

// survive calls f, and reports whether the agent has survived it.
func survive(f func()) (survived bool) {
	defer func() {
		switch p := recover(); p {
		case nil, crash{}:
		default:
			panic(p)
		}
	}()
	f()
	return true
}

// wrong notes something that must not happen.
func (s *sandbox) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrongLocked(format, args...)
}

func (s *sandbox) wrongLocked(format string, args ...any) {
	s.wrongdoings = append(s.wrongdoings, fmt.Sprintf(format, args...))
}

func (s *sandbox) wrongs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrongdoings)
}
