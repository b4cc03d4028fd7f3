package restore

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/outside"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/podnames"
	"diapause.dev/agent/recorded"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/workingset"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// restore is one sandbox being restored.
type restore struct {
	record

	revived  bool              // an earlier agent has prepared it
	reader   *snapshots.Reader // guarded by Restores.mu; nil: it was released
	meta     *snapshot.Meta    // of the snapshot; set by attach
	volumes  []string          // names of the snapshot's volumes
	payloads []string          // directories in the snapshot that the kubelet has written (kubelet.Payload)
	total    int64             // bytes of all image files
	start    time.Time

	may     chan struct{} // closed when its pod, which sleeps, may be woken
	decided chan struct{} // closed when that wakes, if its kernel is loaded beforehand

	waking sync.Mutex  // held while the pod's reminder is written or removed, see reminder.go
	fed    atomic.Bool // the sandbox may have got a byte of its image
	urgent atomic.Bool // somebody waits until the sandbox has everything
	guided atomic.Bool // the sandbox loads first what it is expected to wait for

	account gofer.Account // of what this agent has written into the sandbox's memory

	concluded sync.Once     // see conclude
	ended     chan struct{} // closed when the sandbox has everything, or has failed or gone

	mu       sync.Mutex // guards what follows, and record.Loaded
	state    state
	err      error // why the restore fails
	serving  int   // connections of its sidecar
	ahead    bool  // its kernel is, or was, loaded before the pod wakes
	admitted bool  // the pod sleeps and may be woken, or is being woken: see Unloaded
	woken    bool  // the pod was woken, and runs
	died     bool  // a sandbox whose kernel was loaded before has gone and had no memory
	asked    workingset.Asked
	late     int // reads that came late; rs.mu guards it
	need     need
	read     int64 // bytes handed to the sandbox
}

// Config says what restores work on.
type Config struct {
	Requests      requests.Dir
	SidecarSocket string // that sidecars connect to
	Reminders     string // the directory with the reminders of pods that sleep
	KeepCPULimits bool   // a pod's limit of processor time stays while it is restored
	VolumeLimit   int64  // limit for all volumes in one snapshot together, in bytes
	Runtime       Runtime
	Readers       *snapshots.Readers
	Lineage       *snapshots.Lineage
	Pace          *pace.Pace                                    // by which loading ahead of need gives way
	Facts         func(context.Context) (snapshot.Facts, error) // of this node
	Life          *lifetime.Life
	Metrics       Metrics
	Logger        *slog.Logger
}

// Runtime is what restores need of containerd. *cri.Client implements it.
type Runtime interface {
	Get(ctx context.Context, id string) (*cri.Pod, error)
	Kill(ctx context.Context, pod *cri.Pod) error
	RunRestored(ctx context.Context, rec snapshot.Pod, o cri.RunOptions) (*cri.Pod, error)
	RemovePod(ctx context.Context, id string) error
	RemoveContainer(ctx context.Context, id string) error
	Unstarted(ctx context.Context) ([]string, error)
	Taken(ctx context.Context, names []string) (*cri.Pod, error)
	Image(ctx context.Context, containerID string) (name, digest string, err error)
	Newest(ctx context.Context, podUID, except string) (id string, err error)
}

// Metrics count restores.
type Metrics interface {
	Restore(err error, took time.Duration, bytes int64)
}

// Cluster is what restores need of the cluster that a node belongs to.
type Cluster interface {
	// NotRestored tells the cluster why a pod could not be restored.
	NotRestored(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error)
}

// Restores holds the restores under way on this node. Its methods may be called concurrently.
type Restores struct {
	Config
	log      *slog.Logger
	podNames podnames.Names
	images   otherImages
	cluster  Cluster      // or nil
	hurried  atomic.Int64 // see hurry; in nanoseconds since 1970

	mu      sync.Mutex
	all     map[string]*restore    // by request
	watched map[string]*watchedPod // by namespace/name
	trying  map[string]bool        // by sandbox; see tryAgain
	unwoken map[string]endedWake   // by request; see keepUnwoken

	endedAsleep map[string]time.Time // by the pod's UID; see undecided
}

// New returns the restores of a node. None is under way.
func New(o Config) *Restores {
	return &Restores{
		Config: o, log: o.Logger, all: make(map[string]*restore), watched: make(map[string]*watchedPod),
		trying: make(map[string]bool), unwoken: make(map[string]endedWake),
		endedAsleep: make(map[string]time.Time),
	}
}

// Join sets the cluster that is told about failed restores. It must be called before any restore, and at most once.
func (rs *Restores) Join(c Cluster) { rs.cluster = c }

// Choice says how a new pod starts: restored from a snapshot, or ordinarily.
type Choice struct {
	Snapshot snapshot.Key // zero: an ordinary start
	// UID is the UID of the chosen snapshot. If another snapshot has the key by now, the restore is refused
	// (errkind.ErrReplaced). Empty: any snapshot with the key.
	UID   string
	Store string // the location of its store, in the syntax of agent.Config.Store; empty: any store
	Fail  bool   // a pod that cannot be restored is refused instead of started anew
	// Init holds the names of containers that had ended in the snapshot. They are not run again.
	Init []string
	// Containers is how many of the pod's containers start if only root file systems are restored. The pod is restored
	// once the last of them has started. 0: as many as the snapshot has.
	Containers int
	// Probes are what the kubelet runs in the pod's containers by exec, whatever the choice is.
	Probes []*localv1.ExecProbe

	// Inherited: the cluster has made the snapshot of a sleep one that serves the successors of its pod.
	Inherited bool

	// IgnoreVolumes: the pod is restored although volumes outside its snapshot have changed since.
	IgnoreVolumes bool

	wakes bool // the restore wakes a pod that sleeps
	own   bool // the pod slept, or was woken, when its sandbox was lost
}

// Prepared is a restore that is ready for its sandbox.
type Prepared struct {
	Request    string
	Dir        string // the image path for runsc
	Key        snapshot.Key
	Scope      snapshot.Scope
	Containers int                           // of the snapshot
	Volumes    []string                      // names of the snapshot's volumes
	Payloads   []string                      // directories in it that the kubelet has written (kubelet.Payload)
	Terminals  map[string]*snapshot.Terminal // of its containers, by their names
	ExitCodes  map[string]int32              // of containers that had ended, by their names
}

// Prepare makes everything ready for a sandbox to be restored. It fails if it can tell beforehand that the restore
// cannot succeed. limit is the pod's memory limit in bytes; 0: not known.
func (rs *Restores) Prepare(ctx context.Context, c Choice, pod snapshot.PodRef, sandboxID string, limit int64,
) (Prepared, error) {
	r, dir, err := rs.prepare(ctx, c, pod, sandboxID, limit)
	if err != nil {
		return Prepared{}, err
	}
	meta := r.meta // the reader may have been released by now
	return Prepared{
		Request: r.Request, Dir: dir, Key: r.Key, Scope: r.Scope, Containers: len(meta.Pod.Containers), Volumes: r.volumes,
		Payloads:  r.payloads,
		Terminals: recorded.Terminals(meta.Pod), ExitCodes: recorded.ExitCodes(meta.Pod),
	}, nil
}

func (rs *Restores) prepare(ctx context.Context, c Choice, pod snapshot.PodRef, sandboxID string, limit int64,
) (*restore, string, error) {
	key := c.Snapshot
	if err := key.Validate(); err != nil {
		return nil, "", fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if pod.Namespace != key.Namespace {
		return nil, "", fmt.Errorf("%w: a pod of namespace %q may not be restored from a snapshot of namespace %q",
			errkind.ErrInvalid, pod.Namespace, key.Namespace)
	}
	r := newRestore(record{
		Request: requests.NewID(8), Token: requests.NewID(16), Key: key, UID: rs.expected(c, pod), Store: c.Store,
		SandboxID: sandboxID, Pod: pod, Limit: limit, Wakes: c.wakes,
	})
	if err := rs.attach(ctx, r); err != nil {
		return nil, "", err
	}
	err := serves(r.meta, c)
	if err == nil {
		err = recorded.Room(r.meta, limit)
	}
	if err == nil {
		err = rs.images.found(pod, r.UID)
	}
	if err == nil && !c.wakes && !c.IgnoreVolumes { // what others wrote while it slept is its owner's business
		err = outside.Compare(ctx, r.meta, pod.UID)
	}
	if err != nil {
		rs.drop(r)
		return nil, "", err
	}
	dir, err := rs.write(r)
	if err != nil {
		rs.drop(r)
		return nil, "", err
	}
	rs.mu.Lock()
	rs.all[r.Request] = r
	if w := rs.watched[r.Pod.String()]; w != nil {
		w.restore = r
	}
	rs.mu.Unlock()
	rs.Lineage.Set(sandboxID, r.Scope, key)
	rs.hurry(createTime)
	return r, dir, nil
}

// serves refuses the snapshot of a sleep to any pod but its own, unless the cluster has made it one for successors: it
// is the memory of a live pod, with its sessions and secrets.
func serves(m *snapshot.Meta, c Choice) error {
	if m.Purpose != snapshot.ForSleep || c.wakes || c.own || c.Inherited && m.Inheritable {
		return nil
	}
	return fmt.Errorf("%w: snapshot %s is of the sleep of pod %s, and serves that pod alone: checkpoint the pod, and "+
		"restore that snapshot", errkind.ErrInvalid, m.Key, m.Origin.Pod)
}

// expected returns the UID that the snapshot must have. It is the choice's UID, or else that of the snapshot from which
// a request of this node makes the pod. Empty: any.
func (rs *Restores) expected(c Choice, pod snapshot.PodRef) string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if w := rs.watched[pod.String()]; w != nil && c.UID == "" {
		return w.uid
	}
	return c.UID
}

// attach opens the snapshot for a restore. From then on the restore reads this snapshot, and no other one with its key.
func (rs *Restores) attach(ctx context.Context, r *restore) error {
	reader, err := rs.Readers.Open(ctx, snapshots.ID{Key: r.Key, UID: r.UID}, r.Store)
	if err != nil {
		return err
	}
	r.reader, r.UID = reader, reader.ID.UID
	r.meta = &reader.Manifest.Meta
	r.Scope = r.meta.Scope
	r.total = reader.Manifest.Stats().RawBytes
	if err = rs.findVolumes(r, reader.Manifest); err == nil {
		if !r.Wakes || r.admitted {
			rs.warm(ctx, reader) // a store takes its time for each answer to check, too
		}
		err = rs.check(ctx, r, reader)
	}
	if err == nil {
		if err = recorded.Check(r.meta.Pod); err != nil {
			err = fmt.Errorf("snapshot %s: %w", r.Key, err)
		}
	}
	if err != nil {
		rs.drop(r)
		return err
	}
	return nil
}

// check returns why a snapshot cannot be restored, as far as can be known without reading all of it. If an earlier
// agent began the restore, check does not compare the node with the snapshot again: the node fits, and the sandbox is
// waiting.
func (rs *Restores) check(ctx context.Context, r *restore, s *snapshots.Reader) error {
	if !r.revived {
		return rs.fit(ctx, s)
	}
	if err := s.Check(ctx); err != nil {
		return fmt.Errorf("snapshot %s: %w", r.Key, err)
	}
	return nil
}

// fit returns why a snapshot cannot be restored on this node, as far as can be known without reading all of it.
func (rs *Restores) fit(ctx context.Context, s *snapshots.Reader) error {
	meta := &s.Manifest.Meta
	node, err := rs.Facts(ctx)
	if err == nil {
		err = meta.Scope.Validate()
	}
	if err == nil && meta.Scope == snapshot.RootfsOnly {
		err = runsc.CompatibleRootfs(meta.Facts, node)
	} else if err == nil {
		err = runsc.Compatible(meta.Facts, node)
	}
	if err == nil {
		err = s.Check(ctx)
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", meta.Key, err)
	}
	return nil
}

// write creates the request's directory, with what the sidecar and the next agent must know.
func (rs *Restores) write(r *restore) (string, error) {
	dir := rs.Requests.Path(r.Request)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("request directory: %w", err)
	}
	err := rs.remember(r)
	if err == nil {
		o := sidecar.Options{
			Socket: rs.SidecarSocket, Request: r.Request, Token: r.Token, Direction: sidecar.Restore,
			KeepCPULimit: rs.KeepCPULimits,
		}
		if !r.reader.OnNode {
			o.ReadBytes = farRead
		}
		if r.Scope == snapshot.RootfsOnly {
			o.Direction = sidecar.RootfsRestore
		}
		err = o.Write(dir)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("request directory: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// Source returns the image of the restore that a sidecar belongs to.
func (rs *Restores) Source(o sidecar.Options) (gofer.Source, error) {
	r, err := rs.find(rs.Life.Context(), o.Request)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(r.Token), []byte(o.Token)) != 1 {
		return nil, fmt.Errorf("request %s: %w", o.Request, requests.ErrUnknown)
	}
	if rs.held(r.Request) {
		return rs.sourceAhead(r), nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == ended {
		return nil, fmt.Errorf("request %s: %w", o.Request, requests.ErrUnknown)
	}
	if rs.asleep(r.Request) {
		r.begun()
		rs.Life.Go(func() { rs.warmWake(r) })
		rs.Life.Go(func() { _ = rs.feed(r) }) // saves time: the first read reports an error
	}
	r.serving++
	return &source{rs: rs, restore: r}, nil
}

// find returns a restore. If an earlier agent prepared it, find makes it from what that agent wrote down.
func (rs *Restores) find(ctx context.Context, request string) (*restore, error) {
	if r := rs.ofRequest(request); r != nil {
		return r, nil
	}
	r, err := rs.revive(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w: %w", request, requests.ErrUnknown, err)
	}
	return r, nil
}

// ofRequest returns the restore of a request that this agent serves, or nil.
func (rs *Restores) ofRequest(request string) *restore {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.all[request]
}

// Explain adds to what the shim says of a failed restore what this agent knows of it: why memory could not be read.
func (rs *Restores) Explain(request string, failure error) error {
	if err := rs.ofRequest(request).cause(); err != nil {
		return fmt.Errorf("%w: %w", err, failure)
	}
	return failure
}

// Reported notes that the shim has reported a failed restore of a sandbox, and ends the sandbox. If the restore's
// sidecar is still connected, the restore ends only with that connection.
func (rs *Restores) Reported(request, sandbox string, failure error) {
	r := rs.ofRequest(request)
	if r == nil {
		rs.reportedLate(request, sandbox)
		return
	}
	r.note(toldByShim{failure})
	r.mu.Lock()
	r.on(shimFailed)
	unserved := r.state == failing && r.serving == 0
	r.mu.Unlock()
	if unserved {
		rs.finish(r, failure)
	}
}

// errGivenUp is the kind of error of a restore whose sandbox starts anew, or does not start.
var errGivenUp = errors.New("was canceled")

// GiveUp ends the restores that were prepared for a sandbox that will not be restored.
func (rs *Restores) GiveUp(sandbox string, reason error) {
	rs.mu.Lock()
	var given []*restore
	for _, r := range rs.all {
		if r.SandboxID == sandbox {
			given = append(given, r)
		}
	}
	rs.mu.Unlock()
	rs.keepRecorded(sandbox, given)
	for _, r := range given {
		if r.waking.Lock(); !r.fed.Load() {
			rs.keepReminder(&r.record)
		}
		r.waking.Unlock()
		rs.Reported(r.Request, sandbox, fmt.Errorf("restore of %s %w: %w", r.Key, errGivenUp, reason))
	}
}

// reviveTime bounds reading a snapshot's manifest for a sidecar that has come back.
const reviveTime = 30 * time.Second

func (rs *Restores) revive(ctx context.Context, request string) (*restore, error) {
	r, err := rs.recall(request)
	if err != nil {
		return nil, err
	}
	if !r.Loaded {
		ctx, cancel := context.WithTimeout(ctx, reviveTime)
		defer cancel()
		if err := rs.attach(ctx, r); err != nil {
			return nil, err
		}
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if other := rs.all[request]; other != nil {
		rs.dropLocked(r)
		return other, nil
	}
	rs.all[request] = r
	return r, nil
}

// recall makes a restore from what an earlier agent wrote down.
func (rs *Restores) recall(request string) (*restore, error) {
	rec, err := rs.readRecord(request)
	if err != nil {
		return nil, err
	}
	r := newRestore(rec)
	r.revived = true
	r.admitted = r.Wakes && !rs.asleep(request)
	if r.Loaded {
		r.state = loaded
		r.concluded.Do(func() { close(r.ended) })
	}
	return r, nil
}

// Wanted reports whether the directory of a request must stay. It must stay as long as the request's sandbox exists,
// because its sidecar may come back. known is false if the request is not a restore.
func (rs *Restores) Wanted(ctx context.Context, request string) (wanted, known bool) {
	r := rs.ofRequest(request)
	if r == nil {
		var err error
		if r, err = rs.recall(request); err != nil {
			newer := errors.Is(err, errNewer) // the agent that wrote it may come back
			return newer, newer
		}
	}
	if rs.orphan(r) {
		return false, true
	}
	_, err := rs.Runtime.Get(ctx, r.SandboxID)
	return !errors.Is(err, cri.ErrNotFound), true
}

// Abandon ends a restore whose sandbox has gone and whose sidecar has not reported that.
func (rs *Restores) Abandon(request string) {
	r := rs.ofRequest(request)
	if r != nil {
		rs.finish(r, fmt.Errorf("restore of %s: %w", r.Key, errkind.ErrSandboxExited))
	}
}

// finish ends a restore: err is why it failed, or nil if the sandbox has everything.
func (rs *Restores) finish(r *restore, err error) {
	r.mu.Lock()
	first := r.on(over)
	r.mu.Unlock()
	if !first {
		return
	}
	rs.keepUnwoken(r, err) // before its request is forgotten: Woken may come at any time
	rs.mu.Lock()
	delete(rs.all, r.Request)
	if err == nil && r.reader != nil && r.seenThrough() {
		rs.record(r.reader, r.asked.Chunks())
	}
	rs.mu.Unlock()
	rs.drop(r)
	if err := rs.Requests.Remove(r.Request); err != nil {
		rs.log.Warn("request directory not removed", "request", r.Request, "error", err)
	}
	rs.forgetUnanswered(r.SandboxID)
	rs.conclude(r, err)
	// The shim may have ended a sandbox that had everything.
	if err := r.failure(); err != nil && !errors.Is(err, errGivenUp) && !r.Wakes { // a pod that slept has all containers
		rs.tryAgain(r.SandboxID, r.Scope)
	}
}

// forgetUnanswered removes the other requests of a sandbox whose restore has ended. An agent has left them that was
// killed before it could tell the shim its decision; the shim has asked the next agent, and got another request.
func (rs *Restores) forgetUnanswered(sandbox string) {
	all, err := rs.Requests.All()
	if err != nil {
		rs.log.Warn("request directories unreadable", "error", err)
	}
	for _, request := range all {
		rec, err := rs.readRecord(request)
		if err != nil || rs.ofRequest(request) != nil || rec.SandboxID != sandbox || rs.asleep(request) {
			continue
		}
		if err := rs.Requests.Remove(request); err != nil {
			rs.log.Warn("request directory not removed", "request", request, "error", err)
		}
	}
}

// seenThrough reports whether this agent has seen all that the sandbox asked for, without a failure.
func (r *restore) seenThrough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err == nil && !r.revived
}

// conclude wakes waiters with the restore's outcome. Only the first call counts.
func (rs *Restores) conclude(r *restore, err error) {
	r.concluded.Do(func() {
		r.mu.Lock()
		if !errors.Is(r.err, err) { // otherwise it was noted before
			r.err = errors.Join(r.err, err)
		}
		err, read, took := r.err, r.read, time.Since(r.start)
		r.mu.Unlock()
		rs.Metrics.Restore(err, took, read)
		rs.log.Info("restore ended", "request", r.Request, "snapshot", r.Key.String(), "took", took, "error", err)
		close(r.ended)
	})
}

// watchedPod is a pod whose restore a request of this node waits for.
type watchedPod struct {
	rs      *Restores
	pod     string
	uid     string // of the snapshot that it is made from
	restore *restore
}

// watch follows the restore of a pod that is about to be made from the snapshot with this UID, until forget is called.
func (rs *Restores) watch(pod, uid string) *watchedPod {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	w := &watchedPod{rs: rs, pod: pod, uid: uid}
	rs.watched[pod] = w
	return w
}

func (w *watchedPod) forget() {
	w.rs.mu.Lock()
	defer w.rs.mu.Unlock()
	if w.rs.watched[w.pod] == w {
		delete(w.rs.watched, w.pod)
	}
}

// get returns the pod's restore, or nil if the shim has not asked for one.
func (w *watchedPod) get() *restore {
	w.rs.mu.Lock()
	defer w.rs.mu.Unlock()
	return w.restore
}

// cause returns why a restore, which may be nil, failed if the agent itself found that out, or nil. A failure that the
// shim reported is left out: the shim has told containerd, too.
func (r *restore) cause() error {
	if r == nil {
		return nil
	}
	err := r.failure()
	if errors.As(err, new(toldByShim)) {
		return nil
	}
	return err
}

// toldByShim is the reason that the shim reported for a failed restore.
type toldByShim struct{ error }

// Unwrap returns what the shim said.
func (e toldByShim) Unwrap() error { return e.error }

// drop releases what a restore reads from.
func (rs *Restores) drop(r *restore) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.dropLocked(r)
}

// dropLocked is drop. The caller holds rs.mu.
func (rs *Restores) dropLocked(r *restore) {
	s := r.reader
	if s == nil {
		return
	}
	r.reader = nil
	rs.Readers.Release(s)
}
