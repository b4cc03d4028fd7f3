package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/asleep"
	"diapause.dev/agent/backlog"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/newpods"
	"diapause.dev/agent/place"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// saved is the snapshot that a rig has.
var saved = snapshot.Key{Namespace: "n", Name: "s"}

// facts are the facts of a rig's node.
var facts = snapshot.Facts{Architecture: "amd64", RunscVersion: "test", RunscDigest: "d", Platform: "systrap"}

// rig is a node without containerd, with a client of its services.
type rig struct {
	Config
	agent    localv1.AgentClient
	shim     localv1.ShimClient
	requests requests.Dir
	metrics  *refusals
	free     atomic.Int64 // bytes of the node's memory
	criAway  bool         // containerd does not answer
	version  string       // of containerd
	ran      string       // the sandbox in which containerd says that the pod ran last
	journal  *journal.Journal
}

// noPool keeps no pod ready.
type noPool struct{}

func (noPool) Changed()    {}
func (noPool) Woke(string) {}

// newRig returns a rig in a cluster. Without a cluster, c is nil.
func newRig(t *testing.T, c Cluster) *rig {
	t.Helper()
	dir, bell := t.TempDir(), snapshots.NewBell()
	store := "dir:" + dir + "/store"
	if _, _, err := place.MakeStore(t.Context(), store, false); err != nil {
		t.Fatal(err)
	}
	stores, err := snapshots.Open(t.Context(), snapshots.Options{
		StateDir: dir + "/state", Store: store, Opened: bell.Ring, Logger: journaltest.Quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	j, _ := journaltest.New(t)
	life := lifetime.New(t.Context())
	readers, backlog := snapshots.OpenReaders(stores, life), backlog.New(func(map[string]int) {})
	changed := func(*journal.Record) {}
	r := &rig{requests: requests.Dir(dir + "/requests"), metrics: &refusals{}, version: "containerd v2.4.2"}
	nodeFacts := func(context.Context) (snapshot.Facts, error) { return facts, nil }
	marks := asleep.NewMarks(r.requests, journaltest.Quiet)
	told, clustered := c.(restore.Cluster)
	reminders := asleep.NewReminders(asleep.Config{
		Dir: dir + "/asleep", Runtime: goneRuntime{}, Marks: marks, Clustered: clustered, Logger: journaltest.Quiet,
	})
	r.Config = Config{
		Version: "v", Node: "node", Store: store, StateDir: dir + "/state", Containerd: "socket",
		RunscConfig: dir + "/runsc.toml", Started: time.Unix(1, 0), Runtime: runtime{r}, Facts: nodeFacts,
		Stores: stores, Backlog: backlog, Sandboxes: keylock.New(), Cluster: c, Metrics: r.metrics, Life: life,
		Logger:  journaltest.Quiet,
		Catalog: snapshots.NewCatalog(snapshots.NewRemover(stores, readers, nil), j, backlog, changed, bell.Ring),
		Restores: restore.New(restore.Config{
			Requests: r.requests, SidecarSocket: dir + "/sidecars", VolumeLimit: 1 << 20, Readers: readers,
			Runtime: goneRuntime{}, Marks: marks, Reminders: reminders,
			Lineage: snapshots.NewLineage(), Facts: nodeFacts, Cluster: told, Life: life, Metrics: r.metrics,
			Logger: journaltest.Quiet,
		}),
	}
	r.Wakes, r.Reminders = restore.NewWakes(r.Restores), reminders
	r.NewPods = newpods.New(newpods.Config{Readers: readers, Restores: r.Restores})
	r.Lives = lives.New(lives.Config{Dir: dir + "/past", Runtime: sandboxes{r}, Journal: j, Logger: journaltest.Quiet})
	if err := os.Mkdir(r.Lives.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.journal = j
	r.Sleeps = sleep.New(sleep.Config{
		Restores: r.Wakes, Runtime: r, Waker: sleep.NewWaker(r, marks), Ready: noPool{}, Logger: journaltest.Quiet,
	})
	r.Admission = admission.New(admission.Config{
		Reserve: 1 << 20, Available: func() (int64, error) { return r.free.Load(), nil }, Restores: r.Wakes,
		Life: life, Metrics: r.metrics, Logger: journaltest.Quiet,
	})
	r.Checkpoints = checkpoint.New(checkpoint.Config{
		Sessions: func(string) bool { return false },
		Requests: r.requests, SidecarSocket: dir + "/sidecars", Runtime: pods{rig: r}, Journal: j,
		Unsettled: journal.NewUnsettled(), Sandboxes: r.Sandboxes, Stores: stores, Catalog: r.Catalog, Changed: changed,
		Life: life, Metrics: r.metrics, Logger: journaltest.Quiet,
	})
	r.serve(t, filepath.Join(dir, "s"))
	return r
}

// serve serves the rig until the test ends.
func (r *rig) serve(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, r.Config) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r.agent, r.shim = localv1.NewAgentClient(conn), localv1.NewShimClient(conn)
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if r.Life.Err() == nil {
			t.Error("the agent's life goes on after its service")
		}
		r.Life.Wait()
		if err := r.Stores.Close(); err != nil {
			t.Error(err)
		}
	})
}

// put writes a snapshot into a store.
func put(t *testing.T, s *storage.Store, k snapshot.Key, meta snapshot.Meta) {
	t.Helper()
	w, err := s.NewWriter(t.Context(), k, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.File(runsc.StateFile).Chunk([]byte("state")); err != nil {
		t.Fatal(err)
	}
	meta.Key, meta.Facts = k, facts
	if _, err := w.Commit(t.Context(), meta); err != nil {
		t.Fatal(err)
	}
}

// save writes the rig's snapshot into its spool.
func (r *rig) save(t *testing.T, meta snapshot.Meta) {
	t.Helper()
	meta.UID = "u"
	put(t, r.Stores.Spool(), saved, meta)
}

// refusals counts refused restores.
type refusals struct {
	mu sync.Mutex
	n  int
}

func (m *refusals) Refused() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
}

func (m *refusals) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

func (*refusals) Restore(error, time.Duration, int64) {}

func (*refusals) WakeAdmitted(time.Duration) {}
func (*refusals) WakeGivenUp(time.Duration)  {}
func (*refusals) MadeRoom(error)             {}

func (*refusals) Checkpoint(error, time.Duration, []snapshot.Stage) {}

// sandboxes is containerd as lives see it.
type sandboxes struct{ *rig }

func (r sandboxes) LastRun(context.Context, string, string) (string, error) {
	if r.criAway {
		return "", context.DeadlineExceeded
	}
	return r.ran, nil
}

func (sandboxes) UIDs(context.Context) (map[string]bool, error) { return nil, nil }

// runtime is a containerd with one running pod of our runtime.
type runtime struct{ *rig }

func (r runtime) Version(context.Context) (string, error) {
	if r.criAway {
		return "", fmt.Errorf("containerd: %w", context.DeadlineExceeded)
	}
	return r.version, nil
}

func (r runtime) IDs(context.Context) (map[string]bool, error) {
	return map[string]bool{"sandbox": true}, nil
}

func (r runtime) Info(context.Context) (map[string]string, error) {
	if r.criAway {
		return nil, context.DeadlineExceeded
	}
	return map[string]string{"config": `{"statsCollectPeriod": "1s"}`}, nil
}

func (r runtime) Pods(context.Context) ([]*cri.Pod, error) {
	if r.criAway {
		return nil, context.DeadlineExceeded
	}
	return []*cri.Pod{
		{ID: "sandbox", Namespace: "n", Name: "p", Runtime: cri.RuntimeType, Ready: true},
		{ID: "ended", Runtime: cri.RuntimeType},
		{ID: "other", Ready: true},
	}, nil
}

// goneRuntime is containerd as restores see it: their sandboxes have gone.
type goneRuntime struct{ restore.Runtime }

func (goneRuntime) Get(_ context.Context, id string) (*cri.Pod, error) {
	return nil, fmt.Errorf("%s: %w", id, cri.ErrNotFound)
}

func (goneRuntime) Newest(context.Context, string, string) (string, error) { return "before", nil }

// pods is containerd as checkpoints see it. None of its pods can be checkpointed.
type pods struct {
	checkpoint.Runtime
	*rig
}

func (p pods) Find(_ context.Context, target string) (*cri.Pod, error) {
	switch target {
	case "other":
		return &cri.Pod{ID: "other", Runtime: "io.containerd.runc.v2"}, nil
	case "ended":
		return p.Get(context.Background(), target)
	case "many":
		return nil, fmt.Errorf("%s: %w", target, cri.ErrAmbiguous)
	}
	return nil, fmt.Errorf("%s: %w", target, cri.ErrNotFound)
}

func (p pods) Get(_ context.Context, id string) (*cri.Pod, error) {
	return &cri.Pod{ID: id, Namespace: "n", Name: id, Runtime: cri.RuntimeType}, nil
}

// wantCode checks that an error has a code.
func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

// fakeCluster is a cluster whose decisions the test sets.
type fakeCluster struct {
	choice restore.Choice
	err    error
	slow   chan struct{} // if it is not nil, Choose waits until it is closed

	unconfirmed error  // what Confirmed returns
	notSwept    string // what NotSwept returns

	saving func(context.Context) (time.Duration, bool) // answers MayEnd

	mu          sync.Mutex
	notRestored []error
	restored    []snapshot.Key
	restoredErr error
}

func (c *fakeCluster) Choose(ctx context.Context, _ snapshot.PodRef, past func() (lives.Past, error),
) (restore.Choice, error) {
	if c.slow != nil {
		select {
		case <-c.slow:
		case <-ctx.Done():
		}
	}
	if before, err := past(); err != nil || before.Ran {
		return restore.Choice{Snapshot: before.Stopped.Key, UID: before.Stopped.UID, Fail: err != nil}, err
	}
	return c.choice, c.err
}

func (c *fakeCluster) Again(_ context.Context, _ snapshot.PodRef, choice restore.Choice) (restore.Choice, error) {
	choice.Init = c.choice.Init
	return choice, c.err
}

func (c *fakeCluster) Confirmed(context.Context, snapshot.PodRef, snapshot.Key) error {
	return c.unconfirmed
}

func (c *fakeCluster) NotSwept() string { return c.notSwept }

func (c *fakeCluster) MayEnd(ctx context.Context, _ snapshot.PodRef) (time.Duration, bool) {
	return c.saving(ctx)
}

func (c *fakeCluster) NotRestored(_ context.Context, _ snapshot.PodRef, _ snapshot.Key, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notRestored = append(c.notRestored, err)
}

func (c *fakeCluster) Restored(_ context.Context, _ snapshot.PodRef, k snapshot.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restored = append(c.restored, k)
	return c.restoredErr
}

func (c *fakeCluster) failures() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notRestored
}

var errAway = fmt.Errorf("the API server: %w", errkind.ErrClusterAway)
