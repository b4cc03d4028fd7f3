package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"
)

// Tasks asks containerd's own services for what the CRI cannot do. What is asked of a task goes on to its shim.
type Tasks struct {
	client     tasksapi.TasksClient
	containers containersapi.ContainersClient
	namespace  string // containerd's, that holds the pods
}

// scoped returns ctx with the containerd namespace, which the task service needs.
func (t *Tasks) scoped(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, t.namespace)
}

// Checkpoint makes the shim of the pod's sandbox save the whole sandbox to imagePath, an absolute directory, and
// leave the sandbox running. It returns when all of the image has been handed over. The error contains runsc's own
// message.
//
// Checkpoint calls the task service directly, because the checkpoint of containerd's client would pause the task
// first. With an image path, containerd keeps nothing of the checkpoint in its content store.
func (t *Tasks) Checkpoint(ctx context.Context, podID, imagePath string) error {
	opts, err := typeurl.MarshalAnyToProto(&options.CheckpointOptions{ImagePath: imagePath, Exit: false})
	if err != nil {
		return fmt.Errorf("checkpoint sandbox %s: encode options: %w", podID, err)
	}
	_, err = t.client.Checkpoint(t.scoped(ctx), &tasksapi.CheckpointTaskRequest{ContainerID: podID, Options: opts})
	if err != nil {
		return fmt.Errorf("checkpoint sandbox %s: %w", podID, native(err))
	}
	return nil
}

// Pause stops all tasks of the pod's sandbox until Resume.
func (t *Tasks) Pause(ctx context.Context, podID string) error {
	if _, err := t.client.Pause(t.scoped(ctx), &tasksapi.PauseTaskRequest{ContainerID: podID}); err != nil {
		return fmt.Errorf("pause sandbox %s: %w", podID, native(err))
	}
	return nil
}

// Resume resumes a paused sandbox.
func (t *Tasks) Resume(ctx context.Context, podID string) error {
	if _, err := t.client.Resume(t.scoped(ctx), &tasksapi.ResumeTaskRequest{ContainerID: podID}); err != nil {
		return fmt.Errorf("resume sandbox %s: %w", podID, native(err))
	}
	return nil
}

// Paused reports whether the pod's sandbox is paused, otherwise than by PauseFor: the shim says of one that is paused
// by a lease that it runs. If the sandbox is gone, the error is of kind ErrNotFound.
func (t *Tasks) Paused(ctx context.Context, podID string) (bool, error) {
	p, err := t.process(ctx, podID)
	if err != nil {
		return false, fmt.Errorf("state of sandbox %s: %w", podID, err)
	}
	return p.GetStatus() == task.Status_PAUSED || p.GetStatus() == task.Status_PAUSING, nil
}

const shimTime, pollShim = 30 * time.Second, 100 * time.Millisecond // untilAnswered's limit, and its pause

// untilAnswered repeats a question to a shim for as long as that takes longer to answer than containerd waits, which is
// two seconds: ask then returns an error of kind [context.DeadlineExceeded]. A busy node has such shims.
func untilAnswered(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shimTime, errors.New("its shim does not answer"))
	defer cancel()
	for {
		err := ask(ctx)
		if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if !pause(ctx, pollShim) {
			return context.Cause(ctx)
		}
	}
}

// asker asks for the process of a sandbox or container. If there is none, the error is of kind ErrNotFound.
type asker func(ctx context.Context, id string) (*task.Process, error)

// process is an asker that waits until the shim answers.
func (t *Tasks) process(ctx context.Context, id string) (p *task.Process, err error) {
	err = untilAnswered(ctx, func(ctx context.Context) (err error) {
		if p, err = t.processNow(ctx, id); err == nil && p.GetStatus() == task.Status_UNKNOWN {
			return context.DeadlineExceeded
		}
		return err
	})
	return p, err
}

// processNow is an asker that does not wait for a slow shim. A shim runs runsc to find the answer. If that takes
// longer than the two seconds that containerd waits, processNow returns a process without an id, in state UNKNOWN.
// Containerd 2.1 and 2.2 return this themselves; later ones return an error, which processNow replaces.
func (t *Tasks) processNow(ctx context.Context, id string) (*task.Process, error) {
	r, err := t.client.Get(t.scoped(ctx), &tasksapi.GetRequest{ContainerID: id})
	err = native(err)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return &task.Process{}, nil
	}
	return r.GetProcess(), err
}

// sandboxPID returns the process of a sandbox. It is 0 if there is none, or if ask cannot find out.
func sandboxPID(ctx context.Context, id string, ask asker) (int, error) {
	p, err := ask(ctx, id)
	if isGone(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("process of sandbox %s: %w", id, err)
	}
	return int(p.GetPid()), nil
}

// annotate passes an annotation to the shim of a container, which takes it for a request.
func (t *Tasks) annotate(ctx context.Context, id, name, value string) error {
	_, err := t.client.Update(t.scoped(ctx), &tasksapi.UpdateTaskRequest{
		ContainerID: id, Annotations: map[string]string{name: value},
	})
	return native(err)
}

// runtimeType returns the runtime type of a container. It is empty if containerd has forgotten the container, as it
// does once a sandbox was stopped and not removed.
func (t *Tasks) runtimeType(ctx context.Context, id string) (string, error) {
	r, err := t.containers.Get(t.scoped(ctx), &containersapi.GetContainerRequest{ID: id})
	if err := native(err); isGone(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("runtime of container %s: %w", id, err)
	}
	return r.GetContainer().GetRuntime().GetName(), nil
}
