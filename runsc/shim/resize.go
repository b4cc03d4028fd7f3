package shim

import (
	"context"
	"log/slog"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// resizeLimit bounds how long runsc may take to tell a container that its terminal has a new size.
const resizeLimit = 2 * time.Second

// resizes are the containers that are being told of a new size of their terminals. The zero value has none.
type resizes struct {
	mu  sync.Mutex
	all map[string]int // new sizes since the last signal began, by container id
}

// begin records a new size. It reports whether the caller must tell the container. If another caller is telling it
// already, that one will tell it again.
func (s *resizes) begin(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]int)
	}
	s.all[id]++
	return s.all[id] == 1
}

// again reports whether the container must be told again, because its terminal has had another size since.
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

// ResizePty resizes the terminal of a container, or of a process in it. It also sends SIGWINCH to the container's
// processes. Linux would do so by itself, but a process in gVisor gets no signal: it only sees the new size if it
// asks.
func (c *containers) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*types.Empty, error) {
	resp, err := c.TaskServiceExt.ResizePty(ctx, r)
	if err == nil && r.ExecID == "" && c.resizes.begin(r.ID) {
		c.progress.pending.of(r.ID).Go(func() { c.tellResized(context.WithoutCancel(ctx), r.ID) })
	}
	return resp, err
}

// tellResized tells a container that its terminal has a new size, and again while there are newer ones.
func (c *containers) tellResized(ctx context.Context, id string) {
	for more := true; more; more = c.resizes.again(id) {
		if err := c.signalAll(ctx, id, unix.SIGWINCH); err != nil {
			slog.Info("the container does not know yet that its terminal has another size", "container", id, "error", err)
		}
	}
}

// signalAll sends a signal to all processes of a container. It does not take gVisor's lock, which is held while a
// container starts.
func (c *containers) signalAll(ctx context.Context, id string, s unix.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, resizeLimit)
	defer cancel()
	if err := c.progress.askable(ctx, id); err != nil {
		return err
	}
	runtime, err := c.runtime(ctx)
	if err != nil {
		return err
	}
	return runtime.Kill(ctx, id, int(s), &runsccmd.KillOpts{All: true})
}
