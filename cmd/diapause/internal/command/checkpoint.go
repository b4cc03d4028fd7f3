package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/usage"
)

type checkpointFlags struct {
	name                 string
	stop, noWait, rootfs bool
}

func (p *podCommands) checkpoint() *cobra.Command {
	var f checkpointFlags
	c := &cobra.Command{
		Use:   "checkpoint [--stop] [--rootfs-only] [--name N] [--no-wait] POD",
		Short: "Save a running pod as a snapshot",
		Long: `Save a running pod as a snapshot. POD is a pod's name, namespace/name, a pod id or a container
id. You can shorten ids while they are unambiguous. The pod runs on unless you give --stop.
A restored pod that is still loading its memory is saved once it has all of it, or not at all.
With --rootfs-only the snapshot contains the files of the pod's containers and no memory:
a pod restored from it starts again, with its files as they were.
A pod that sleeps is not woken, except for --rootfs-only: its snapshot is made of what it was saved as.

The command ends when the snapshot is in the store. On a node of a cluster it also waits until the
controller has confirmed the snapshot, and a pod that is to be stopped is not paused before. If you
interrupt it, or its --timeout passes, it cancels the request, unless that has gone too far.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completePods,
		RunE:              p.run(func(ctx context.Context, args []string) error { return p.runCheckpoint(ctx, args[0], f) }),
	}
	c.Flags().BoolVar(&f.stop, "stop", false, "stop the pod once its snapshot is safe on this node")
	c.Flags().BoolVar(&f.rootfs, "rootfs-only", false, "save the files of the containers, no memory and no processes")
	c.Flags().StringVar(&f.name, "name", "", "`name` of the snapshot (default: made from the pod's name)")
	c.Flags().BoolVar(&f.noWait, "no-wait", false,
		"return when the snapshot is restorable on this node; replication goes on")
	return c
}

func (p *podCommands) runCheckpoint(ctx context.Context, pod string, f checkpointFlags) error {
	if f.name != "" && !snapshot.ValidName(f.name) {
		return usage.Error{Err: fmt.Errorf("--name %.200q: want at most 253 of a-z, 0-9, '-' and '.'", f.name)}
	}
	req := &localv1.CheckpointRequest{
		Target: pod, Name: f.name, NoWaitReplicated: f.noWait, RootfsOnly: f.rootfs,
		After: localv1.AfterMode_AFTER_MODE_LEAVE_RUNNING,
	}
	if f.stop {
		req.After = localv1.AfterMode_AFTER_MODE_STOP
	}
	ctx, cancel := p.client.long(ctx)
	defer cancel()
	return p.client.ask(ctx, func(a localv1.AgentClient) error {
		run := checkpointRun{display: progress.New(p.console.err, progress.Bytes)}
		err := run.follow(ctx, a, req)
		run.display.Close()
		if err != nil {
			err = run.explain(pod, err)
		}
		return p.endCheckpoint(run, err)
	})
}

// endCheckpoint prints the snapshot, even if something failed after it was made.
func (p *podCommands) endCheckpoint(r checkpointRun, err error) error {
	if r.snapshot == nil {
		return err
	}
	result := view.Checkpoint{Request: r.request, Snapshot: view.NewSnapshot(r.snapshot)}
	result.Failure = failure(err)
	return errors.Join(err, p.console.print(result))
}

// checkpointRun follows one checkpoint.
type checkpointRun struct {
	display  progress.Display
	request  string
	last     *localv1.Progress // nil: none yet
	snapshot *localv1.Snapshot // its newest state; nil: none yet
}

func (r *checkpointRun) follow(ctx context.Context, a localv1.AgentClient, req *localv1.CheckpointRequest) error {
	s, err := a.Checkpoint(ctx, req)
	if err == nil {
		err = receive(s, r.take)
	}
	if err == nil && r.snapshot == nil {
		err = errors.New("the agent ended the call without a snapshot: see its log")
	}
	return err
}

func (r *checkpointRun) take(e *localv1.CheckpointEvent) error {
	switch v := e.GetEvent().(type) {
	case *localv1.CheckpointEvent_Accepted:
		r.request = v.Accepted
		r.display.Update("request "+v.Accepted, 0, 0)
	case *localv1.CheckpointEvent_Progress:
		r.last = v.Progress
		r.display.Update(v.Progress.GetStage(), v.Progress.GetDone(), v.Progress.GetTotal())
	case *localv1.CheckpointEvent_Spooled:
		r.snapshot = v.Spooled
		r.display.Note("restorable on this node: " + view.NewSnapshot(v.Spooled).Key())
	case *localv1.CheckpointEvent_Warning:
		r.display.Note("warning: " + v.Warning)
	case *localv1.CheckpointEvent_Done:
		r.snapshot = v.Done
	}
	return nil
}

// explain says what is left when the call ended early.
func (r *checkpointRun) explain(pod string, err error) error {
	wrapped := &callError{doing: "checkpoint", object: pod, hint: hint(err), err: err}
	switch {
	case r.snapshot != nil:
		wrapped.hint = fmt.Sprintf("snapshot %s is restorable on this node, but not known to be replicated",
			view.NewSnapshot(r.snapshot).Key())
	case kind(err) == codes.DeadlineExceeded && r.last.GetStage() == "load":
		wrapped.hint = fmt.Sprintf("the pod was still loading its memory, %d of %d MiB so far; it runs on and was not "+
			"saved: try again later, or set a longer --timeout",
			r.last.GetDone()>>20, r.last.GetTotal()>>20)
	case r.request != "" && (kind(err) == codes.Canceled || kind(err) == codes.DeadlineExceeded):
		wrapped.hint = fmt.Sprintf(`request %s may have gone too far to be cancelled: see "diapause top" and "diapause ls"`,
			r.request)
	}
	return wrapped
}
