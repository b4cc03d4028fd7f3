package agent

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"diapause.dev/agent/durable"
	"diapause.dev/agent/errkind"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/storage"
)

// restoreFile holds what the next agent must know to go on with a restore, in its request's
// directory.
const restoreFile = "restore.json"

// restore is one sandbox being restored.
type restore struct {
	Request   string          `json:"request"`
	Token     string          `json:"token"`
	Key       snapshot.Key    `json:"key"`
	UID       string          `json:"uid,omitempty"` // of the snapshot: another one may come to have its key
	Scope     snapshot.Scope  `json:"scope,omitempty"`
	Store     string          `json:"store,omitempty"` // location; empty: any
	SandboxID string          `json:"sandboxID"`
	Loaded    bool            `json:"loaded,omitempty"` // the sandbox has had everything, and may ask again
	Pod       snapshot.PodRef `json:"pod"`
	Limit     int64           `json:"limit,omitempty"` // of the pod's memory, in bytes; 0: not known

	reader     *sharedReader
	containers int      // of the snapshot
	volumes    []string // names of those that it holds
	terminals  map[string]*localv1.Terminal
	exitCodes  map[string]int32 // of containers that had ended, by their names

	ended chan struct{} // closed when the sandbox has everything, or has failed or gone
	start time.Time

	mu      sync.Mutex
	err     error
	done    bool
	told    bool // ended is closed
	revived bool // an earlier agent has prepared it
	spoilt  bool // the sandbox is ended, for its files cannot be had
	serving int  // connections of its sidecar
	failed  bool // the shim says that it has: the last connection's end is the restore's
	asked   asked
	read    int64 // bytes handed to the sandbox
	total   int64 // bytes of all image files
}

// restores are the restores under way on this node.
type restores struct {
	*Agent
	mu      sync.Mutex
	all     map[string]*restore        // by request
	readers map[readerID]*sharedReader // shared by restores of one snapshot
	watched map[string]*watchedPod     // by namespace/name
}

func newRestores(a *Agent) *restores {
	return &restores{
		Agent: a, all: make(map[string]*restore), readers: make(map[readerID]*sharedReader),
		watched: make(map[string]*watchedPod),
	}
}

// prepare makes everything ready for a sandbox to be restored, and returns the image path that
// runsc is to be given. It fails if the restore cannot succeed as far as can be known beforehand. limit is that of the
// pod's memory in bytes; 0: not known.
func (rs *restores) prepare(ctx context.Context, c Choice, pod snapshot.PodRef, sandboxID string,
	limit int64,
) (*restore, string, error) {
	key := c.Snapshot
	if err := key.Validate(); err != nil {
		return nil, "", fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if pod.Namespace != key.Namespace {
		return nil, "", fmt.Errorf("%w: a pod of namespace %q may not be restored from a snapshot of namespace %q",
			errkind.ErrInvalid, pod.Namespace, key.Namespace)
	}
	r := &restore{
		Request: newID(8), Token: newID(16), Key: key, UID: rs.expected(c, pod), Store: c.Store, SandboxID: sandboxID,
		Pod: pod, Limit: limit,
		ended: make(chan struct{}), start: time.Now(),
	}
	if err := rs.attach(ctx, r); err != nil {
		return nil, "", err
	}
	if err := roomFor(&r.reader.manifest.Meta, limit); err != nil {
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
	rs.setLineage(sandboxID, r.Scope, key)
	return r, dir, nil
}

// expected returns the UID of the snapshot that was chosen for a pod, or that the pod was made for;
// empty: nobody has looked at it yet.
func (rs *restores) expected(c Choice, pod snapshot.PodRef) string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if w := rs.watched[pod.String()]; w != nil && c.UID == "" {
		return w.uid
	}
	return c.UID
}

// attach opens the snapshot for a restore, which from then on is of that one and no other.
func (rs *restores) attach(ctx context.Context, r *restore) error {
	reader, err := rs.open(ctx, readerID{r.Key, r.UID}, r.Store)
	if err != nil {
		return err
	}
	r.reader, r.UID = reader, reader.id.uid
	r.Scope, r.containers = reader.manifest.Meta.Scope, len(reader.manifest.Meta.Pod.Containers)
	r.total = reader.manifest.Stats().RawBytes
	r.terminals = terminalsOf(reader.manifest.Meta.Pod)
	r.exitCodes = exitCodesOf(reader.manifest.Meta.Pod)
	r.volumes, err = rs.volumesOf(reader.manifest)
	if err == nil {
		err = rs.check(ctx, r, reader)
	}
	if err != nil {
		rs.drop(r)
		return err
	}
	reader.prefetched.Do(func() { rs.prefetch(reader) }) // it is known by now where the packs are
	return nil
}

// check returns why a snapshot cannot be restored, as far as can be known without reading it all. A
// sandbox that an earlier agent began to restore waits for the answer, and is on a node that fits.
func (rs *restores) check(ctx context.Context, r *restore, s *sharedReader) error {
	if !r.revived {
		return rs.fit(ctx, s)
	}
	if err := s.Check(ctx); err != nil {
		return fmt.Errorf("snapshot %s: %w", r.Key, err)
	}
	return nil
}

// fit returns why a snapshot cannot be restored on this node, as far as can be known without
// reading it all.
func (rs *restores) fit(ctx context.Context, s *sharedReader) error {
	meta := &s.manifest.Meta
	node, err := rs.node.get(ctx)
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

// write puts the request's directory in place.
func (rs *restores) write(r *restore) (string, error) {
	dir := filepath.Join(rs.cfg.RequestDir, r.Request)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("request directory: %w", err)
	}
	err := rs.remember(r)
	if err == nil {
		o := sidecar.Options{Socket: rs.cfg.SidecarSocket, Request: r.Request, Token: r.Token, Direction: sidecar.Restore}
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

// remember writes down what the next agent must know.
func (rs *restores) remember(r *restore) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(rs.cfg.RequestDir, r.Request, restoreFile), b)
}

// source returns the restore that a sidecar belongs to.
func (rs *restores) source(o sidecar.Options) (gofer.Source, error) {
	r, err := rs.find(rs.life.Context(), o.Request)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(r.Token), []byte(o.Token)) != 1 {
		return nil, fmt.Errorf("request %s: %w", o.Request, errUnknownRequest)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil, fmt.Errorf("request %s: %w", o.Request, errUnknownRequest)
	}
	r.serving++
	return &source{rs: rs, restore: r}, nil
}

// find returns a restore. After a restart of the agent it is made again from what the earlier one wrote
// down.
func (rs *restores) find(ctx context.Context, request string) (*restore, error) {
	rs.mu.Lock()
	r := rs.all[request]
	rs.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := rs.revive(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w: %w", request, errUnknownRequest, err)
	}
	return r, nil
}

// reported takes the shim's word that a restore has failed. While its sidecar is there, that one's
// end is waited for.
func (rs *restores) reported(request string, failure error) {
	rs.mu.Lock()
	r := rs.all[request]
	rs.mu.Unlock()
	if r == nil || failure == nil {
		return
	}
	r.note(toldByShim{failure})
	r.mu.Lock()
	r.failed = true
	over := r.serving == 0
	r.mu.Unlock()
	if over {
		rs.finish(r, failure)
	}
}

// giveUp ends what was prepared for a sandbox that does not come to be restored.
func (rs *restores) giveUp(sandbox string, reason error) {
	rs.mu.Lock()
	var given []*restore
	for _, r := range rs.all {
		if r.SandboxID == sandbox {
			given = append(given, r)
		}
	}
	rs.mu.Unlock()
	for _, r := range given {
		rs.reported(r.Request, fmt.Errorf("restore of %s was given up: %w", r.Key, reason))
	}
}

// reviveTime bounds reading a snapshot's manifest for a sidecar that has come back.
const reviveTime = 30 * time.Second

func (rs *restores) revive(ctx context.Context, request string) (*restore, error) {
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

// localName reports whether a request names a directory of its own.
func localName(request string) bool {
	return filepath.Base(request) == request && request != ".." && request != "."
}

// recall reads what an earlier agent wrote down of a restore.
func (rs *restores) recall(request string) (*restore, error) {
	if !localName(request) {
		return nil, fmt.Errorf("%w: request %.40q", errkind.ErrInvalid, request)
	}
	b, err := os.ReadFile(filepath.Join(rs.cfg.RequestDir, request, restoreFile))
	if err != nil {
		return nil, err
	}
	r := &restore{ended: make(chan struct{}), start: time.Now(), revived: true}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if r.Loaded {
		r.told = true
		close(r.ended)
	}
	return r, r.Key.Validate()
}

// wanted reports whether a request's directory must stay.
func (rs *restores) wanted(ctx context.Context, request string) bool {
	rs.mu.Lock()
	r := rs.all[request]
	rs.mu.Unlock()
	if r == nil {
		var err error
		if r, err = rs.recall(request); err != nil {
			return rs.captures.isExpected(request) || rs.waiting(ctx, request)
		}
	}
	if rs.orphan(r) {
		return false
	}
	_, err := rs.cri.Get(ctx, r.SandboxID)
	return !errors.Is(err, cri.ErrNotFound)
}

// abandon ends a restore whose sandbox is gone without a word from its sidecar.
func (rs *restores) abandon(request string) {
	rs.mu.Lock()
	r := rs.all[request]
	rs.mu.Unlock()
	if r != nil {
		rs.finish(r, fmt.Errorf("restore of %s: %w", r.Key, errkind.ErrSandboxExited))
	}
}

// finish ends a restore: err is why it failed, or nil if the sandbox has everything.
func (rs *restores) finish(r *restore, err error) {
	r.mu.Lock()
	first := !r.done
	r.done = true
	r.mu.Unlock()
	if !first {
		return
	}
	rs.mu.Lock()
	delete(rs.all, r.Request)
	if err == nil && r.reader != nil && r.seenThrough() {
		rs.record(r.reader, r.asked.chunks())
	}
	rs.mu.Unlock()
	rs.drop(r)
	if err := os.RemoveAll(filepath.Join(rs.cfg.RequestDir, r.Request)); err != nil {
		rs.log.Warn("request directory not removed", "request", r.Request, "error", err)
	}
	rs.conclude(r, err)
}

// seenThrough reports whether this agent has seen all that the sandbox asked for, without a failure.
func (r *restore) seenThrough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err == nil && !r.revived
}

// conclude tells who waits for a restore that the sandbox has everything, or why not.
func (rs *restores) conclude(r *restore, err error) {
	r.mu.Lock()
	first := !r.told
	r.told = true
	if first && !errors.Is(r.err, err) { // else it was noted before
		r.err = errors.Join(r.err, err)
	}
	err = r.err
	read := r.read
	r.mu.Unlock()
	if !first {
		return
	}
	rs.metrics.restore(err, time.Since(r.start), read)
	rs.log.Info("restore ended", "request", r.Request, "snapshot", r.Key.String(), "took", time.Since(r.start), "error",
		err)
	close(r.ended)
}

// watchedPod is a pod whose restore somebody waits for.
type watchedPod struct {
	rs      *restores
	pod     string
	uid     string // of the snapshot that it is made for
	restore *restore
}

// watch follows the restore of a pod that is about to be made from the snapshot of that UID, until
// forget is called.
func (rs *restores) watch(pod, uid string) *watchedPod {
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

// failure returns why the restore failed, as far as the agent knows, or nil.
func (w *watchedPod) failure() error {
	if r := w.get(); r != nil {
		return r.failure()
	}
	return nil
}

// cause returns why the restore failed if the agent knows that by itself: what the shim has told it has told
// containerd too.
func (w *watchedPod) cause() error {
	err := w.failure()
	if errors.As(err, new(toldByShim)) {
		return nil
	}
	return err
}

// toldByShim is the shim's word on why a restore failed.
type toldByShim struct{ error }

// Unwrap returns what the shim said.
func (e toldByShim) Unwrap() error { return e.error }

// using reports whether a snapshot of that key is being restored from.
func (rs *restores) using(k snapshot.Key) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for id := range rs.readers {
		if id.key == k {
			return true
		}
	}
	return false
}

// readerID names one snapshot. A key alone does not: once its snapshot is removed, another one may be
// made under it.
type readerID struct {
	key snapshot.Key
	uid string // empty: whichever has the key now
}

// sharedReader is a reader that all restores of one snapshot share, and with it what it has
// decoded.
type sharedReader struct {
	*storage.Reader
	id       readerID
	manifest *storage.Manifest
	onNode   bool           // the spool has it
	far      *storage.Store // that has it too, or nil
	users    int
	released chan struct{} // closed when nobody uses it any more

	prefetched sync.Once
}

// open returns the reader of a snapshot. It holds no lock while it reads.
func (rs *restores) open(ctx context.Context, id readerID, location string) (*sharedReader, error) {
	if s := rs.share(id); s != nil {
		rs.uses.note(s.id.uid)
		return s, nil
	}
	h, err := rs.look(ctx, id, location)
	if err != nil {
		return nil, err
	}
	id.uid = h.manifest.Meta.UID
	rs.uses.note(id.uid)
	s := &sharedReader{
		Reader: storage.NewReader(h.manifest, h.stores...), id: id, manifest: h.manifest, onNode: h.onNode,
		released: make(chan struct{}),
	}
	if len(h.stores) > 1 {
		s.far = h.stores[1]
	}
	return rs.publish(s)
}

// share counts one more user of a snapshot's reader; nil: there is none.
func (rs *restores) share(id readerID) *sharedReader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s := rs.readers[id]
	if s != nil {
		s.users++
	}
	return s
}

// publish shares a fresh reader, unless another one of its snapshot has been shared meanwhile.
func (rs *restores) publish(fresh *sharedReader) (*sharedReader, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s := rs.readers[fresh.id]
	if s == nil {
		s, rs.readers[fresh.id] = fresh, fresh
		rs.hold(s)
	} else if err := fresh.Close(); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", fresh.id.key, err)
	}
	s.users++
	return s, nil
}

// held is a snapshot and the stores that its bytes can be read from, the best first.
type held struct {
	manifest *storage.Manifest
	stores   []*storage.Store
	onNode   bool // the spool has it
}

// look finds a snapshot: what the node holds before the store at a location, or any store if that is
// empty. A store that is away is waited for only by what the node does not hold.
func (rs *restores) look(ctx context.Context, id readerID, location string) (held, error) {
	candidates, err := rs.candidates(location)
	if err != nil {
		return held{}, err
	}
	m, err := id.of(ctx, rs.spool)
	if err == nil {
		stores := []*storage.Store{rs.spool}
		for _, r := range candidates {
			if far := r.ready(); far != nil {
				stores = append(stores, far)
			}
		}
		return held{m, stores, true}, nil
	}
	errs := []error{err}
	for _, r := range candidates {
		far, err := r.get(ctx)
		if err == nil {
			if m, err = id.of(ctx, far); err == nil {
				return held{m, []*storage.Store{rs.spool, far}, false}, nil
			}
		}
		errs = append(errs, err)
	}
	return held{}, notOnNode(id.key, errs)
}

// of returns the snapshot's manifest in a store. If another snapshot has its key there, the error is
// of kind ErrReplaced.
func (id readerID) of(ctx context.Context, s *storage.Store) (*storage.Manifest, error) {
	m, err := s.Manifest(ctx, id.key)
	if err == nil && id.uid != "" && m.Meta.UID != id.uid {
		return nil, fmt.Errorf("%w: %w", errkind.ErrReplaced, storage.ErrNotFound)
	}
	return m, err
}

// candidates returns the stores that may hold a snapshot.
func (rs *restores) candidates(location string) ([]*remote, error) {
	if location == "" {
		return rs.stores.all(), nil
	}
	r, err := rs.stores.at(location)
	return []*remote{r}, err
}

// notOnNode says why a snapshot cannot be had: the reason that weighs most.
func notOnNode(k snapshot.Key, errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("snapshot %s: %w", k, err)
		}
	}
	for _, err := range errs {
		if errors.Is(err, errkind.ErrReplaced) {
			return fmt.Errorf("snapshot %s: %w", k, err)
		}
	}
	return fmt.Errorf("snapshot %s: %w, neither on this node nor in the store", k, storage.ErrNotFound)
}

func (rs *restores) drop(r *restore) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.dropLocked(r)
}

func (rs *restores) dropLocked(r *restore) {
	s := r.reader
	if s == nil {
		return
	}
	r.reader = nil
	rs.releaseLocked(s)
}

// releaseLocked counts one user of a snapshot's reader less.
func (rs *restores) releaseLocked(s *sharedReader) {
	if s.users--; s.users > 0 {
		return
	}
	if rs.readers[s.id] == s {
		delete(rs.readers, s.id)
	}
	close(s.released)
	if err := s.Close(); err != nil {
		rs.log.Warn("snapshot not closed", "snapshot", s.id.key.String(), "error", err)
	}
}
