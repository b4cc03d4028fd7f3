package shim

import (
	"context"
	"sync"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// setExtension sets the extension that stands before gVisor's task service. It is called once, before the service is
// made. GVisor asks for an extension each time that a container is created, and has the last one answer all requests:
// so it gets the same one each time.
func setExtension() {
	var once sync.Once
	var all *router
	extension.NewExtension = func(_ context.Context, next extension.TaskServiceExt,
		_ *task.CreateTaskRequest,
	) (extension.TaskServiceExt, error) {
		once.Do(func() {
			consoles.attend()
			all = newRouter(localAgent(), next)
			runsccmd.Monitor = unwatched{runsccmd.Monitor, all}
			serving.Store(all)
		})
		return all, nil
	}
	extension.NewPodExtension = extension.NewExtension // if gVisor's own grouping is enabled
}
