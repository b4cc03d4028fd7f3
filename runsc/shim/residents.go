package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"diapause.dev/runsc/revive"
	"diapause.dev/runsc/shim/usage"
	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// residents are the containers of a pod that its shim has created. Its methods may be called concurrently.
type residents struct {
	mu  sync.Mutex
	all map[string]*resident // by id
	pid uint32               // of the sandbox; 0: there was none yet
}

// resident is a container that can sleep.
type resident struct {
	id, bundle string
	name       string                  // in its pod; empty: it has none
	io         *task.CreateTaskRequest // names of its standard streams
	usage      usage.Usage

	// The fields below are guarded by residents.mu.
	execs   map[string]added // processes that were added to it and run or are to
	state   *task.StateResponse
	pids    *task.PidsResponse
	streams *streams
	resized *task.UpdateTaskRequest        // the newest change of its resources; nil: none
	woken   bool                           // the sandbox was restored with it
	dead    bool                           // it has ended in its sleep
	revival atomic.Pointer[revive.Revival] // it is being created again; nil: it is not
}

// added is a process that was added to a container.
type added struct {
	end   func()                   // ends its session
	probe bool                     // the kubelet has added it as a probe
	io    *task.ExecProcessRequest // names of its standard streams
}

func newResidents() *residents { return &residents{all: make(map[string]*resident)} }

// of returns a container, or nil.
func (r *residents) of(id string) *resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[id]
}

// named returns containers by their ids.
func (r *residents) named(ids []string) (all []*resident, err error) {
	for _, id := range ids {
		x := r.of(id)
		if x == nil {
			return nil, fmt.Errorf("%w: its shim does not know container %s", sleep.ErrUnfit, id)
		}
		all = append(all, x)
	}
	return all, nil
}

// created notes a container for which gVisor's shim knows process pid. Sandbox says that it is the sandbox container.
func (r *residents) created(x *resident, pid uint32, sandbox bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sandbox {
		r.pid = pid
	}
	r.all[x.id] = x
}

// forget forgets what was deleted or has ended, and ends its sessions.
func (r *residents) forget(d *task.DeleteRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.all[d.ID]
	if x == nil {
		return
	}
	for id, p := range x.execs {
		if d.ExecID == "" || d.ExecID == id {
			p.end()
			delete(x.execs, id)
		}
	}
	if d.ExecID == "" {
		delete(r.all, d.ID)
	}
}

// pidOf returns the process of a container for which gVisor's shim knows pid. Of a pod's containers that is the
// sandbox's. GVisor's shim knows none except the first one of the sandbox container, see oom.go.
func (r *residents) pidOf(id string, pid uint32) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pid != 0 && r.all[id] != nil {
		return r.pid
	}
	return pid
}

// stateAsleep returns the state of a container as it was before it fell asleep.
func (r *residents) stateAsleep(id string) (*task.StateResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.all[id]
	if x == nil || x.state == nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound))
	}
	return x.state, nil // nobody changes it from here on
}

// noteResized notes a change of a container's resources.
func (r *residents) noteResized(u *task.UpdateTaskRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.all[u.ID]; x != nil {
		x.resized = u
	}
}

// ended reports whether a container of a pod that no longer sleeps has ended in its sleep.
func (r *residents) ended(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.all[id]
	return x == nil || x.dead
}

// filestorePrefix begins the name of the file in which gVisor keeps what a container has written to its root file
// system (runsc/boot, SelfFilestorePrefix). The id of the sandbox follows.
const filestorePrefix = ".gvisor.filestore."

// removeFilestore removes that file of a container without a sandbox. Runsc leaves it behind if it is killed while it
// restores the container, and does not restore one that has such a file.
func (x *resident) removeFilestore(sandbox string) error {
	err := os.Remove(filepath.Join(x.bundle, "rootfs", filestorePrefix+sandbox))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
