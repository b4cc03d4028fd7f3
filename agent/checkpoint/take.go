package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
)

// take captures the image. Without Stop the pause is within take: it is in throughShim, while Runtime.Checkpoint runs.
// With Stop it begins before and lasts longer: see saveAndStop. A sentry that saves by itself also pauses by itself.
//
// The instants lie in gVisor: SaveOpts.Save (pkg/sentry/state) stops the tasks after the image's files are opened, and
// lets them run after the last one is finished. So of the stages of the timeline the pause is capture, and the first
// moments of resume. Its length as a client sees it is what "bench pause" measures.
func (c *checkpoint) take(life context.Context) (*capture.Image, error) {
	c.o.Progress("capture", 0, 0)
	o := capture.Options{Scope: c.o.Scope, Pages: c.arena, Chunk: snapshots.ChunkSize, Take: c.room.smallFiles()}
	if c.volumes.Any() || c.outside.Any() {
		o.Meanwhile = c.captureVolumes
	}
	c.capture = capture.New(o)
	var im *capture.Image
	var err error
	if c.o.sentry != nil {
		im, err = c.receive(life)
	} else {
		im, err = c.instruct(life)
	}
	resumed := time.Now()
	opened, closed := c.capture.Span()
	c.watch.lapAt("ask", opened)
	c.watch.lapAt("capture", closed)
	c.watch.lapAt("resume", resumed)
	if err == nil {
		err = c.shareVolumes(im)
	}
	if err != nil {
		return nil, err
	}
	return im, c.checkSameContainers(life)
}

// shareVolumes notes in an image of root file systems which mounts of the containers show the same volume. A restore
// then brings back the volume's files in all of them. An image of the whole pod needs no such note.
func (c *checkpoint) shareVolumes(im *capture.Image) error {
	if c.o.Scope != snapshot.RootfsOnly {
		return nil
	}
	mounts, err := cri.Mounts(c.meta.Pod)
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
func (c *checkpoint) checkSameContainers(ctx context.Context) error {
	now, err := c.cs.Runtime.Running(ctx, c.pod.ID)
	if err != nil {
		return err
	}
	if !slices.Equal(now, c.running) || len(now) != len(c.meta.Pod.Containers) {
		return fmt.Errorf("pod %s: %w: a container ended or was started while it was checkpointed", c.pod, cri.ErrNotRunning)
	}
	return nil
}

// receive captures what a sentry sends that has started the save by itself.
func (c *checkpoint) receive(life context.Context) (*capture.Image, error) {
	ctx, cancel := context.WithTimeoutCause(life, c.cs.CaptureTime, errkind.ErrCaptureTime)
	defer cancel()
	stop := context.AfterFunc(ctx, c.capture.Abort)
	defer stop()
	c.capture.Serve(c.o.sentry.take())
	im, err := c.capture.Image(ctx)
	if err != nil {
		return nil, c.whyFailed(ctx, err)
	}
	return im, nil
}

// instruct makes the shim save the sandbox, and expects the sidecar of that save.
func (c *checkpoint) instruct(life context.Context) (*capture.Image, error) {
	dir := c.cs.Requests.Path(c.rec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("request directory: %w", err)
	}
	defer os.RemoveAll(dir)
	opts := sidecar.Options{
		Socket: c.cs.SidecarSocket, Request: c.rec.ID, Token: requests.NewID(16),
		Direction: sidecar.Checkpoint, KeepCPULimit: c.cs.KeepCPULimits,
	}
	if c.o.Scope == snapshot.RootfsOnly {
		opts.Direction = sidecar.RootfsCheckpoint
	}
	forget := c.cs.captures.expect(opts, c.capture)
	defer forget()
	if err := opts.Write(dir); err != nil {
		return nil, err
	}
	return c.throughShim(life, dir)
}

// throughShim makes the shim save the sandbox, and waits until the save is done and the sandbox runs on. When life ends
// or CaptureTime is over, it hangs up on the sentry: the save fails and the sandbox runs on. It waits for that, too.
func (c *checkpoint) throughShim(life context.Context, dir string) (*capture.Image, error) {
	ctx, cancel := context.WithTimeoutCause(life, c.cs.CaptureTime, errkind.ErrCaptureTime)
	defer cancel()
	stop := context.AfterFunc(ctx, c.capture.Abort)
	defer stop()
	rpc, cancelRPC := context.WithTimeout(context.WithoutCancel(life), c.cs.CaptureTime+resumeTime)
	defer cancelRPC()
	if err := c.cs.Runtime.Checkpoint(rpc, c.pod.ID, dir); err != nil {
		c.capture.Abort()
		return nil, c.whyFailed(ctx, err)
	}
	noteTerminals(dir, &c.meta.Pod, c.log)
	im, err := c.capture.Image(ctx)
	if err != nil {
		return nil, c.whyFailed(ctx, err)
	}
	return im, nil
}

// whyFailed returns the reason for a failed save. The sentry and the shim say only that it failed: that is err. So
// whyFailed looks for a failure of the arena or of a volume, a deadline, a dead sandbox, or a refusal. If it finds
// none, it returns err.
func (c *checkpoint) whyFailed(ctx context.Context, err error) error {
	if cause := c.arena.Err(); cause != nil {
		return fmt.Errorf("capture into the arena of %d bytes and the spool %s: %w", c.room.arena, c.cs.Stores.SpoolDir(),
			cause)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if cause := c.capture.MeanwhileErr(); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if !c.pod.Alive() {
		return fmt.Errorf("%w: %w", errkind.ErrSandboxExited, err)
	}
	if cause := c.capture.Err(); cause != nil {
		return fmt.Errorf("pod %s was not saved: the agent did not take what its sandbox sent: %w", c.pod, cause)
	}
	return err
}
