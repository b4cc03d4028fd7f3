package request

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/snapshots"
)

// Checkpoints saves pods. *checkpoint.Checkpoints implements it.
type Checkpoints interface {
	// Checkpoint saves a pod. An error of kind errkind.ErrNotReplicated means that the snapshot is safe on this node, and
	// that replication goes on.
	Checkpoint(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
}

// captures carry out jobs: the checkpoints themselves.
type captures struct {
	node    Checkpoints
	objects *objects.Objects
	names   *names.Clock
	records *record.Records
	waiters *waiters
	work    *control.Background
	log     *slog.Logger
}

// begin accepts a job and starts its checkpoint in a goroutine that Run waits for. If the job cannot be added,
// it does nothing: see record.Jobs.Add.
func (c *captures) begin(j *record.Job) {
	if c.records.Jobs.Add(j) {
		c.work.Go(func() { c.checkpoint(j) })
	}
}

// beginTime bounds how long a job waits until its pod is being saved, because the pod may still be loading its
// memory. It is shorter than the 180 s for which the Agent Sandbox SDK waits. So the SDK hears why, and no pod is
// saved or stopped for a client that no longer waits.
const beginTime = 150 * time.Second

// errNotBegun means that beginTime is over.
var errNotBegun = fmt.Errorf("not begun within %v", beginTime)

// tellWaiting returns a function that makes one event on a pod for each thing that its checkpoint waits for before the
// pause: until the pod's memory is loaded, and until the agent has memory for the checkpoint.
func (c *captures) tellWaiting(j *record.Job) func(stage string, done, total int64) {
	var loads, memory sync.Once
	tell := func(n notice.Event, args ...any) { c.objects.Events.Pod(j.Pod, j.Asker.About(), n, args...) }
	return func(stage string, done, total int64) {
		switch {
		case total == 0:
		case stage == "load":
			loads.Do(func() { tell(notice.StillLoading, done>>20, total>>20) })
		case stage == "memory":
			memory.Do(func() { tell(notice.AwaitsMemory, total>>20) })
		}
	}
}

// checkpoint carries a job out, and requeues everything that waits for its outcome.
func (c *captures) checkpoint(j *record.Job) {
	log := c.log.With("pod", j.Pod.String())
	ctx, cancel := context.WithTimeoutCause(c.work.Life, beginTime, errNotBegun)
	defer cancel()
	_, err := c.node.Checkpoint(ctx, c.work.Life, checkpoint.Options{
		Target: j.Pod.UID, Named: func() (string, error) { return c.records.Name(j, c.names) },
		Stop: j.Plan.Stop, Completed: j.Plan.Stop,
		Progress: c.tellWaiting(j),
		Spooled:  func(f *snapshots.Found, _ string) { c.waiters.captured(f.Manifest.Meta.Key) },
	})
	if errors.Is(err, errkind.ErrNotReplicated) || errors.Is(err, errkind.ErrNeverReplicated) {
		log.Warn("the snapshot is on this node only", "error", err)
		err = nil
	} else if err != nil {
		log.Error("checkpoint failed", "error", err)
	}
	if k := c.records.Jobs.End(j, err); k.Name != "" {
		c.waiters.progressed(k)
	}
	c.waiters.kick(j.Requester)
	c.waiters.nextTurn(j.Pod)
}

// turnPause is how often a save looks whether the pod's former checkpoint is over.
const turnPause = 25 * time.Millisecond

// ending carries out the job for a pod that is being ended. All of it ends with ctx.
func (c *captures) ending(ctx context.Context, j *record.Job) error {
	for !c.records.Jobs.Add(j) {
		select {
		case <-time.After(turnPause):
		case <-ctx.Done():
			return fmt.Errorf("the pod is being checkpointed: %w", context.Cause(ctx))
		}
	}
	_, err := c.node.Checkpoint(ctx, ctx, checkpoint.Options{
		Target: j.Pod.UID, Named: func() (string, error) { return c.records.Name(j, c.names) },
		Stop: true, Ending: true, NoWait: true,
		Progress: c.tellWaiting(j),
		Spooled:  func(f *snapshots.Found, _ string) { c.waiters.captured(f.Manifest.Meta.Key) },
	})
	if k := c.records.Jobs.End(j, err); k.Name != "" {
		c.waiters.progressed(k)
	}
	c.waiters.nextTurn(j.Pod)
	return err
}
