package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"diapause.dev/agent/checkpoint/room"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
)

// capturer captures the image of a sandbox: its sentry saves it, and what that sends goes to the arena.
type capturer struct {
	runtime       Runtime
	expected      *captures // of the sidecars that may come
	requests      requests.Dir
	socket        string        // that sidecars connect to
	keepCPULimits bool          // a pod's limit of processor time stays while it is saved
	limit         time.Duration // deadline of the capture; after it the sandbox runs on
	spoolDir      string        // the arena's file is there

	request string // its ID
	pod     *cri.Pod
	scope   snapshot.Scope
	sentry  *sentry       // that has started the save by itself; or nil
	running []string      // ids of the containers that are recorded
	record  *snapshot.Pod // gets the settings of the terminals
	volumes *podVolumes
	room    *room.Room
	arena   *capture.Arena
	capture *capture.Capture // into the arena; made by take

	progress func(stage string, done, total int64)
	watch    *stopwatch
	log      *slog.Logger
}

// take captures the image. Without Stop the pause is within take: it is in throughShim, while Runtime.Checkpoint runs.
// With Stop it begins before and lasts longer: see saveAndStop. A sentry that saves by itself also pauses by itself.
//
// The instants lie in gVisor: SaveOpts.Save (pkg/sentry/state) stops the tasks after the image's files are opened, and
// lets them run after the last one is finished. So of the stages of the timeline the pause is capture, and the first
// moments of resume. Its length as a client sees it is what "bench pause" measures.
func (t *capturer) take(life context.Context) (*capture.Image, error) {
	t.progress("capture", 0, 0)
	o := capture.Options{Scope: t.scope, Pages: t.arena, Chunk: snapshots.ChunkSize, Take: t.room.SmallFiles()}
	if t.volumes.any() {
		o.Meanwhile = t.volumes.capture
	}
	t.capture = capture.New(o)
	var im *capture.Image
	var err error
	if t.sentry != nil {
		im, err = t.receive(life)
	} else {
		im, err = t.instruct(life)
	}
	resumed := time.Now()
	opened, closed := t.capture.Span()
	t.watch.lapAt("ask", opened)
	t.watch.lapAt("capture", closed)
	t.watch.lapAt("resume", resumed)
	if err == nil {
		err = t.shareVolumes(im)
	}
	if err != nil {
		return nil, err
	}
	return im, t.checkSameContainers(life)
}

// shareVolumes notes in an image of root file systems which mounts of the containers show the same volume. A restore
// then brings back the volume's files in all of them. An image of the whole pod needs no such note.
func (t *capturer) shareVolumes(im *capture.Image) error {
	if t.scope != snapshot.RootfsOnly {
		return nil
	}
	mounts, err := cri.Mounts(*t.record)
	if err != nil {
		return err
	}
	var volumes [][]capture.Place
	for _, places := range mounts {
		var v []capture.Place
		for _, m := range places {
			v = append(v, capture.Place(m))
		}
		volumes = append(volumes, v)
	}
	return im.Share(volumes)
}

// checkSameContainers returns an error unless the recorded containers are those that were captured. A container that
// has ended meanwhile would be missing from the image, and a restore would start it anew.
func (t *capturer) checkSameContainers(ctx context.Context) error {
	now, err := t.runtime.Running(ctx, t.pod.ID)
	if err != nil {
		return err
	}
	if !slices.Equal(now, t.running) || len(now) != len(t.record.Containers) {
		return fmt.Errorf("pod %s: %w: a container ended or was started while it was checkpointed", t.pod, cri.ErrNotRunning)
	}
	return nil
}

// receive captures what a sentry sends that has started the save by itself.
func (t *capturer) receive(life context.Context) (*capture.Image, error) {
	ctx, cancel := context.WithTimeoutCause(life, t.limit, errkind.ErrCaptureTime)
	defer cancel()
	stop := context.AfterFunc(ctx, t.capture.Abort)
	defer stop()
	t.capture.Serve(t.sentry.take())
	im, err := t.capture.Image(ctx)
	if err != nil {
		return nil, t.whyFailed(ctx, err)
	}
	return im, nil
}

// instruct makes the shim save the sandbox, and expects the sidecar of that save.
func (t *capturer) instruct(life context.Context) (*capture.Image, error) {
	dir := t.requests.Path(t.request)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("request directory: %w", err)
	}
	defer os.RemoveAll(dir)
	opts := sidecar.Options{
		Socket: t.socket, Request: t.request, Token: requests.NewID(16),
		Direction: sidecar.Checkpoint, KeepCPULimit: t.keepCPULimits,
	}
	if t.scope == snapshot.RootfsOnly {
		opts.Direction = sidecar.RootfsCheckpoint
	}
	forget := t.expected.expect(opts, t.capture)
	defer forget()
	if err := opts.Write(dir); err != nil {
		return nil, err
	}
	return t.throughShim(life, dir)
}

// throughShim makes the shim save the sandbox, and waits until the save is done and the sandbox runs on. When life ends
// or CaptureTime is over, it hangs up on the sentry: the save fails and the sandbox runs on. It waits for that, too.
func (t *capturer) throughShim(life context.Context, dir string) (*capture.Image, error) {
	ctx, cancel := context.WithTimeoutCause(life, t.limit, errkind.ErrCaptureTime)
	defer cancel()
	stop := context.AfterFunc(ctx, t.capture.Abort)
	defer stop()
	rpc, cancelRPC := context.WithTimeout(context.WithoutCancel(life), t.limit+resumeTime)
	defer cancelRPC()
	if err := t.runtime.Checkpoint(rpc, t.pod.ID, dir); err != nil {
		err = t.whyFailed(ctx, err) // before the capture fails, since it is aborted
		t.capture.Abort()
		return nil, err
	}
	noteTerminals(dir, t.record, t.log)
	im, err := t.capture.Image(ctx)
	if err != nil {
		return nil, t.whyFailed(ctx, err)
	}
	return im, nil
}

// whyFailed returns the reason for a failed save. The sentry and the shim say only that it failed: that is err. So
// whyFailed looks for a failure of the arena or of a volume, a deadline, a dead sandbox, or a refusal. If it finds
// none, it returns err.
func (t *capturer) whyFailed(ctx context.Context, err error) error {
	if cause := t.arena.Err(); cause != nil {
		return fmt.Errorf("capture into the arena of %d bytes and the spool %s: %w", t.room.Arena(), t.spoolDir,
			cause)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if cause := t.capture.MeanwhileErr(); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if !t.pod.Alive() {
		return fmt.Errorf("%w: %w", errkind.ErrSandboxExited, err)
	}
	if cause := t.capture.Err(); cause != nil {
		return fmt.Errorf("pod %s was not saved: the agent did not take what its sandbox sent: %w", t.pod, cause)
	}
	return err
}
