package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"diapause.dev/runsc/shim/panics"
	"diapause.dev/runsc/sidecar"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/anypb"
	"gvisor.dev/gvisor/pkg/sentry/fscheckpoint"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	pb "gvisor.dev/gvisor/pkg/shim/v1/taskserver/task_server_go_proto"
)

// Checkpoint refuses: only the sandbox container can be saved, and with it the whole sandbox.
func (c *containers) Checkpoint(_ context.Context, r *task.CheckpointTaskRequest) (*types.Empty, error) {
	return nil, fmt.Errorf("container %s: a checkpoint is made of the pod's sandbox container: %w", r.ID,
		errdefs.ErrNotImplemented)
}

// Checkpoint saves the whole sandbox to the directory that the options name. If the sidecar there is for root file
// systems, it saves these alone. The sandbox stays running, or paused if it was. Checkpoints of one sandbox are made
// one after the other; other requests for the container do not wait for them. If a container was told to end before
// the sandbox was saved, Checkpoint returns an error, because the snapshot must not be restored. Errors do not
// name the sandbox: the caller does.
func (s *sandbox) Checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*types.Empty, error) {
	if r.ID != s.pod.sandbox {
		return s.containers.Checkpoint(ctx, r)
	}
	path, err := imagePath(r.Options)
	if err != nil {
		return nil, err
	}
	o, err := optionsIn(path)
	if err != nil {
		return nil, err
	}
	rootfs := o.Direction == sidecar.RootfsCheckpoint // the save is of root file systems alone
	select {
	case s.saving <- struct{}{}:
		defer func() { <-s.saving }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the checkpoint before it: %w", context.Cause(ctx))
	}
	server := runsc.NewGvisorTaskServer(s.TaskServiceExt)
	if server == nil {
		return nil, fmt.Errorf("gVisor's task service is %T: %w", s.TaskServiceExt, errdefs.ErrNotImplemented)
	}
	if !rootfs {
		defer s.ports.hold()()
		s.bundle.noteTerminals(path)
	}
	putBack, err := s.headroom.ToSave(ctx)
	if err != nil {
		return nil, err
	}
	defer putBack()
	defer s.headroom.LiftCPUToSave(o)()
	if s.catch != nil {
		defer s.catch()()
	}
	died := panics.From(s.pod.annotations)
	_, err = server.Checkpoint(ctx, &pb.CheckpointRequest{
		Id:        r.ID,
		ImagePath: path,
		// If the sandbox is not to be left running, gVisor kills it even when the save fails.
		LeaveRunning: true,
		// Only uncompressed pages get a file of their own, ordered by their range in memory.
		Compression:  "none",
		FsCheckpoint: rootfs,
		FsPath:       savedFiles,
	})
	if err != nil {
		slog.Error("the sandbox is not checkpointed", "sandbox", r.ID, "error", err)
		return nil, died.Explain(trimStack(err))
	}
	if id := s.roster.ending(); id != "" {
		return nil, fmt.Errorf("container %s was told to end: %w", id, errdefs.ErrFailedPrecondition)
	}
	return &types.Empty{}, nil
}

// savedFiles tells gVisor which files to save if it does not save memory: the root file systems of all containers,
// and the volumes that are kept inside the sandbox and are backed by a file of the node.
const savedFiles = fscheckpoint.AllTmpfsPath

// optionsIn returns the options of an image path's sidecar. If there is none, it returns the zero value.
func optionsIn(path string) (o sidecar.Options, err error) {
	f, err := os.Open(filepath.Join(path, sidecar.OptionsFile))
	if errors.Is(err, os.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("sidecar options: %w", err)
	}
	defer f.Close()
	return sidecar.ReadOptions(f)
}

// imagePath returns the directory in the options of a checkpoint. The options are runc's.
func imagePath(a *anypb.Any) (string, error) {
	if a == nil {
		return "", fmt.Errorf("no options, want runc's CheckpointOptions with an image path: %w", errdefs.ErrInvalidArgument)
	}
	v, err := typeurl.UnmarshalAny(a)
	if err != nil {
		return "", fmt.Errorf("options: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	o, ok := v.(*options.CheckpointOptions)
	if !ok {
		return "", fmt.Errorf("options are %T, want runc's CheckpointOptions: %w", v, errdefs.ErrInvalidArgument)
	}
	if !filepath.IsAbs(o.ImagePath) {
		return "", fmt.Errorf("image path %.80q is not absolute: %w", o.ImagePath, errdefs.ErrInvalidArgument)
	}
	if o.Exit {
		return "", fmt.Errorf("a checkpoint always leaves the sandbox running: ask without exit, then kill it: %w",
			errdefs.ErrInvalidArgument)
	}
	return o.ImagePath, nil
}
