package shim

import (
	"context"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// resizeLimit bounds how long runsc may take to tell a container that its terminal has another size.
const resizeLimit = 2 * time.Second

// resizes are the containers that are being told that their terminals have another size. The zero value
// has none.
type resizes struct {
	mu  sync.Mutex
	all map[string]int // sizes since the container began to be told, by its id
}

// begin reports whether the container must be told; else somebody who tells it already will once more.
func (s *resizes) begin(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]int)
	}
	s.all[id]++
	return s.all[id] == 1
}

// again reports whether the container must be told again: it has been of one size, and there is another.
func (s *resizes) again(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] > 1 {
		s.all[id] = 1
		return true
	}
	delete(s.all, id)
	return false
}

// ResizePty gives the terminal of a container, or of a process in it, another size. The processes of the
// container are told by SIGWINCH, which Linux would send by itself: a process of gVisor learns the size of
// its container's terminal when it asks, and not that it has changed.
func (c *containers) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*types.Empty, error) {
	resp, err := c.TaskServiceExt.ResizePty(ctx, r)
	if err == nil && r.ExecID == "" && c.resizes.begin(r.ID) {
		c.reports.Add(1)
		go func() {
			defer c.reports.Done()
			c.tellResized(context.WithoutCancel(ctx), r.ID)
		}()
	}
	return resp, err
}

// tellResized tells a container that its terminal has another size, and again as long as it gets others.
func (c *containers) tellResized(ctx context.Context, id string) {
	for more := true; more; more = c.resizes.again(id) {
		if err := c.signalAll(ctx, id, unix.SIGWINCH); err != nil {
			log.L.WithError(err).Infof("container %s does not know yet that its terminal has another size", id)
		}
	}
}

// signalAll sends a signal to all processes of a container, without gVisor's lock, which is held for as long
// as the container starts.
func (c *containers) signalAll(ctx context.Context, id string, s unix.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, resizeLimit)
	defer cancel()
	if err := c.askable(ctx, id); err != nil {
		return err
	}
	runtime, err := c.runtime(ctx)
	if err != nil {
		return err
	}
	return runtime.Kill(ctx, id, int(s), &runsccmd.KillOpts{All: true})
}
