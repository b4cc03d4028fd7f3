package shim

import (
	"context"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// setExtension sets the extension that stands before gVisor's task service. It is called once, before the service is
// made.
func setExtension() {
	a := localAgent()
	extension.NewExtension = func(ctx context.Context, next extension.TaskServiceExt,
		req *task.CreateTaskRequest,
	) (extension.TaskServiceExt, error) {
		return extend(ctx, a, next, req.Bundle)
	}
	// With grouping, the first container of the process is the pod's sandbox. The extension made for it also serves the
	// pod's other containers.
	extension.NewPodExtension = extension.NewExtension
}

// extend returns the service for the container with the bundle dir.
func extend(ctx context.Context, a agent, next extension.TaskServiceExt, dir string) (extension.TaskServiceExt, error) {
	p, err := readPod(dir)
	if err != nil {
		return nil, err
	}
	if p.sandbox != "" {
		exits.translate(a.stoppedMarker(p.sandbox))
	}
	consoles.attend()
	base := newContainers(a, p, dir, next)
	if p.isSandbox {
		ofSandbox.Store(base)
		s := newSandbox(ctx, base)
		return newSleeper(ctx, s, base, s), nil
	}
	status, over, err := base.bundle.endedIn(p.container)
	if over {
		return newEnded(next, dir, status), nil
	}
	if p.sandbox != "" {
		go base.endUnstarted()
	}
	return newSleeper(ctx, base, base, nil), err
}
