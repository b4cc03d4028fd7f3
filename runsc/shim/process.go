package shim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/core/events"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"

	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/shim/connections"
)

// process is what the process of a shim has once, for all containers that it serves. The zero value serves none. It
// must not be copied. Its methods may be called concurrently.
//
// GVisor's shim is a library with three package variables: how an extension is made, where exits are announced, and who
// runs the commands of runsc. They are set here alone.
type process struct {
	connected    connections.Set // of containerd
	terminals    terminals
	kubelet      kubelet.Finder
	suppressed   suppressedExits
	neverStarted sync.Map               // ids of containers that were killed before their start, see interruptedstart.go
	serving      atomic.Pointer[router] // nil: no container was created yet

	translating sync.Once
}

// setExtension sets the extension that stands before gVisor's task service. Call it once, before the service is made.
// GVisor asks for an extension each time that a container is created, and has the last one answer all requests: so it
// gets the same one each time, which route makes.
func (p *process) setExtension(route func(next extension.TaskServiceExt) *router) {
	var once sync.Once
	extension.NewExtension = func(_ context.Context, next extension.TaskServiceExt,
		_ *task.CreateTaskRequest,
	) (extension.TaskServiceExt, error) {
		once.Do(func() {
			p.terminals.attend()
			all := route(next)
			runsccmd.Monitor = unwatched{runsccmd.Monitor, all}
			p.serving.Store(all)
		})
		return p.serving.Load(), nil
	}
	extension.NewPodExtension = extension.NewExtension // if gVisor's own grouping is enabled
}

// exitBacklog is how many exits may be queued. GVisor's own channel holds as many.
const exitBacklog = 32

// translateExits stands between the code that announces a container's exit and gVisor's task service, which keeps the
// exit status, publishes it and answers with it. From now on it drops the exits of pods that go to sleep, see
// suppressedExits, and replaces statuses. If the marker file exists, the
// sandbox was stopped on purpose; then a status that gVisor could not learn becomes the one in the file or, if the file
// is empty, that of a process ended by SIGKILL.
//
// Call it after the task service was made and before the service starts a container. It lasts as long as the process,
// like the service that reads the exits.
func (p *process) translateExits(marker string) {
	p.translating.Do(func() {
		out, in := proc.ExitCh, make(chan proc.Exit, exitBacklog)
		proc.ExitCh = in
		go func() {
			for e := range in {
				if p.suppressed.consume(e.ID) {
					continue
				}
				p.terminals.exited(e.ID)
				p.suppressed.exited(e.ID)
				e.Status = translated(e.Status, marker)
				out <- e
			}
		}()
	})
}

// announce makes gVisor's task service record that a container has exited.
func announce(id string) {
	proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: id, Status: internalError}
}

// publishes reports whether containerd may hear of an event. The exit of a container that never started in a sandbox
// that is not restored is not published, see interruptedstart.go.
func (p *process) publishes(event events.Event) bool {
	exit, ok := event.(*eventtypes.TaskExit)
	if !ok {
		return true
	}
	_, never := p.neverStarted.Load(exit.ContainerID)
	return !never
}
