package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/storage"
)

// CheckpointOptions say what to checkpoint and what to do with the sandbox afterwards.
type CheckpointOptions struct {
	Target string // as cri.Client.Find takes it
	Name   string // of the snapshot; empty: one is made
	Stop   bool   // stop the sandbox once the snapshot is safe on this node
	// NoWait returns once the snapshot is restorable on this node.
	NoWait bool
	// Progress, if set, is told how far a stage is, in bytes of raw image; total is 0 while
	// unknown. It is called from several goroutines.
	Progress func(stage string, done, total int64)
	// Accepted and Spooled, if set, are called once each when the request has come that far.
	Accepted func(request string)
	Spooled  func(*Found)
}

// checkpoint is a request on its way.
type checkpoint struct {
	*Agent
	o       CheckpointOptions
	log     *slog.Logger
	rec     *record
	pod     *cri.Pod
	watch   *stopwatch
	meta    snapshot.Meta
	arena   *capture.Arena
	capture *capture.Capture
}

// slack is how many bytes beyond the memory in use an arena is warmed for: what the sandbox
// allocates until it is paused, and its file systems' own memory.
const slack = 16 << 20

// resumeTime bounds undoing a pause, and killing a sandbox whose snapshot is safe. Neither is cut
// short by the end of the request or of the agent.
const resumeTime = time.Minute

// Checkpoint saves a sandbox as a snapshot. Until the sandbox is being saved the request ends with
// ctx; from then on it is seen through as long as life lasts, so that no pause is left half-way.
func (a *Agent) Checkpoint(ctx, life context.Context, o CheckpointOptions) (*Found, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	c := &checkpoint{Agent: a, o: o, watch: newStopwatch()}
	started := time.Now()
	err := c.run(ctx, life)
	a.metrics.checkpoint(err, time.Since(started), c.watch.stages)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %.80q: %w", o.Target, err)
	}
	return a.find(life, c.rec.Key)
}

func (c *checkpoint) run(ctx, life context.Context) error {
	release, err := c.accept(ctx)
	if err != nil {
		return err
	}
	defer release()
	defer c.cleanUp()
	if err := c.save(ctx, life); err != nil {
		return c.fail(err)
	}
	return c.replicated(life)
}

// accept resolves the target, waits for the sandbox's turn, and journals the request.
func (c *checkpoint) accept(ctx context.Context) (release func(), err error) {
	pod, err := c.cri.Find(ctx, c.o.Target)
	if err != nil {
		return nil, err
	}
	if err := pod.CheckRuntime(); err != nil {
		return nil, err
	}
	c.rec = &record{
		ID: newID(8), Pod: pod.String(), SandboxID: pod.ID, Stop: c.o.Stop,
		Stage: StageAccepted, Created: time.Now(),
		Key: snapshot.Key{Namespace: pod.Namespace, Name: c.o.Name},
	}
	if c.rec.Key.Name == "" {
		c.rec.Key.Name = snapshotName(pod.Name, c.rec.Created)
	}
	if err := c.rec.Key.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c.log = c.Agent.log.With("request", c.rec.ID, "pod", c.rec.Pod, "snapshot", c.rec.Key.String())
	if c.o.Accepted != nil {
		c.o.Accepted(c.rec.ID)
	}
	c.o.Progress("queue", 0, 0)
	if release, err = c.turns.take(ctx, pod.ID); err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		release()
		return nil, err
	}
	c.watch.lap("queue")
	return release, c.journal.put(c.rec)
}

// ready looks at the pod again now that its turn has come.
func (c *checkpoint) ready(ctx context.Context) (err error) {
	if c.pod, err = c.cri.Get(ctx, c.rec.SandboxID); err != nil {
		return err
	}
	if !c.pod.Ready || c.pod.SandboxPID == 0 {
		return fmt.Errorf("pod %s: %w", c.pod, cri.ErrNotRunning)
	}
	if taken, err := c.exists(ctx, c.rec.Key); err != nil || taken {
		return errors.Join(err, fmt.Errorf("snapshot %s: %w: choose another name or remove it first", c.rec.Key, storage.ErrExists))
	}
	return nil
}

// exists reports whether a snapshot of this key is in the spool or, if it can be reached, in the
// store.
func (a *Agent) exists(ctx context.Context, k snapshot.Key) (bool, error) {
	if ok, err := a.spool.Has(ctx, k); ok || err != nil {
		return ok, err
	}
	s, err := a.store.get(ctx)
	if err != nil {
		return false, nil // it is refused when it comes to replication
	}
	ok, err := s.Has(ctx, k)
	return ok && err == nil, nil
}

// save takes the snapshot into the spool and carries out the after-mode.
func (c *checkpoint) save(ctx, life context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if !c.o.Stop {
		return c.saveRunning(life)
	}
	return c.saveAndStop(life)
}

// prepare does everything that can be done before the pause.
func (c *checkpoint) prepare(ctx context.Context) (err error) {
	facts, err := c.node.get(ctx)
	if err != nil {
		return err
	}
	rec, err := c.cri.Record(ctx, c.pod.ID)
	if err != nil {
		return err
	}
	c.meta = snapshot.Meta{
		Key: c.rec.Key, UID: newID(16), Facts: facts, Pod: rec,
		Origin: snapshot.Origin{Pod: c.pod.Name, PodUID: c.pod.UID, SandboxID: c.pod.ID, Node: c.cfg.Node},
	}
	used, err := runsc.MemoryUsage(c.pod.SandboxPID)
	if err != nil {
		return err
	}
	c.o.Progress("prepare", 0, used)
	c.arena, err = capture.NewArena(used+slack, c.cfg.Arena, c.spoolDir())
	c.watch.lap("prepare")
	return err
}

func (c *checkpoint) saveRunning(life context.Context) error {
	im, err := c.take(life)
	if err != nil {
		return err
	}
	return c.toSpool(life, im)
}

// saveAndStop pauses the sandbox and ends it once its snapshot is safe. Whatever fails before that,
// the sandbox runs on.
func (c *checkpoint) saveAndStop(life context.Context) (err error) {
	if err := c.advance(StagePaused); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.resume())
		}
	}()
	if err := c.cri.Pause(life, c.pod.ID); err != nil {
		return err
	}
	c.watch.lap("pause")
	im, err := c.take(life)
	if err != nil {
		return err
	}
	if err := c.toSpool(life, im); err != nil {
		return err
	}
	return c.Agent.stop(c.pod, c.rec, c.watch)
}

// resume undoes a pause. A sandbox that is gone, or was not paused, needs none.
func (c *checkpoint) resume() error {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime)
	defer cancel()
	return c.resumeIfPaused(ctx, c.pod.ID)
}

func (a *Agent) resumeIfPaused(ctx context.Context, id string) error {
	paused, err := a.cri.Paused(ctx, id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err != nil || !paused {
		return err
	}
	return a.cri.Resume(ctx, id)
}

// stop ends a paused sandbox whose snapshot is safe. Nothing in it runs again. The marker tells the
// shim that the exit was wanted.
func (a *Agent) stop(pod *cri.Pod, rec *record, watch *stopwatch) error {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime)
	defer cancel()
	marker := filepath.Join(a.cfg.StoppedDir, pod.ID)
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		return fmt.Errorf("mark sandbox %s as stopped: %w", pod.ID, err)
	}
	if err := a.cri.Kill(ctx, pod); err != nil {
		return err
	}
	watch.lap("stop")
	rec.Stopped = true
	return a.journal.put(rec)
}

// advance journals a stage.
func (c *checkpoint) advance(s Stage) error {
	c.rec.Stage, c.rec.Timeline = s, c.watch.stages
	return c.journal.put(c.rec)
}

// fail journals why the request ended.
func (c *checkpoint) fail(err error) error {
	if c.rec.Stage == StageSpooled {
		// The snapshot is safe, only the sandbox was not stopped: it is replicated all the same.
		c.wakeReplicator()
		return fmt.Errorf("snapshot %s was made, but the sandbox was not stopped: %w", c.rec.Key, err)
	}
	c.rec.Stage, c.rec.Error = StageFailed, err.Error()
	c.log.Error("checkpoint failed", "error", err)
	return errors.Join(err, c.journal.put(c.rec))
}

// cleanUp gives back what only the request needed.
func (c *checkpoint) cleanUp() {
	if c.arena == nil {
		return
	}
	if err := c.arena.Close(); err != nil {
		c.log.Warn("arena not closed", "error", err)
	}
}

// replicated sees the snapshot into the store.
func (c *checkpoint) replicated(life context.Context) error {
	if c.o.Spooled != nil {
		if f, err := c.find(life, c.rec.Key); err == nil {
			c.o.Spooled(f)
		}
	}
	if c.o.NoWait {
		c.wakeReplicator()
		return nil
	}
	err := c.replicate(life, c.rec, func(done, total int64) { c.o.Progress("replicate", done, total) })
	if err != nil {
		c.log.Warn("not replicated yet", "error", err)
		return fmt.Errorf("%w: snapshot %s is restorable on this node only; replication is tried again until it succeeds: %w", ErrNotReplicated, c.rec.Key, err)
	}
	return nil
}

// take captures the image: what happens here is the pause.
func (c *checkpoint) take(life context.Context) (*capture.Image, error) {
	dir := filepath.Join(c.cfg.RequestDir, c.rec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("request directory: %w", err)
	}
	defer os.RemoveAll(dir)
	opts := sidecar.Options{Socket: c.cfg.SidecarSocket, Request: c.rec.ID, Token: newID(16), Direction: sidecar.Checkpoint}
	if err := opts.Write(dir); err != nil {
		return nil, err
	}
	c.capture = capture.New(c.arena)
	forget := c.captures.expect(opts, c.capture)
	defer forget()
	c.o.Progress("capture", 0, 0)
	im, err := c.ask(life, dir)
	resumed := time.Now()
	opened, closed := c.capture.Span()
	c.watch.lapAt("ask", opened)
	c.watch.lapAt("capture", closed)
	c.watch.lapAt("resume", resumed)
	return im, err
}

// ask makes the shim save the sandbox, and waits until it has and the sandbox runs on. When life
// ends or the time is over it hangs up on the sentry, which makes the save fail and the sandbox run
// on, and waits for that.
func (c *checkpoint) ask(life context.Context, dir string) (*capture.Image, error) {
	ctx, cancel := context.WithTimeoutCause(life, c.cfg.CaptureTime, ErrCaptureTime)
	defer cancel()
	stop := context.AfterFunc(ctx, c.capture.Abort)
	defer stop()
	rpc, cancelRPC := context.WithTimeout(context.WithoutCancel(life), c.cfg.CaptureTime+resumeTime)
	defer cancelRPC()
	if err := c.cri.Checkpoint(rpc, c.pod.ID, dir); err != nil {
		c.capture.Abort()
		return nil, c.why(ctx, err)
	}
	im, err := c.capture.Image(ctx)
	if err != nil {
		return nil, c.why(ctx, err)
	}
	return im, nil
}

// why finds the reason behind a save that failed: the sentry says only that it did.
func (c *checkpoint) why(ctx context.Context, err error) error {
	if cause := c.arena.Err(); cause != nil {
		return fmt.Errorf("capture into the arena of %d bytes and the spool %s: %w", c.cfg.Arena, c.spoolDir(), cause)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if pod, getErr := c.cri.Get(look, c.pod.ID); errors.Is(getErr, cri.ErrNotFound) || getErr == nil && !pod.Ready {
		return fmt.Errorf("%w: %w", ErrSandboxExited, err)
	}
	return err
}
