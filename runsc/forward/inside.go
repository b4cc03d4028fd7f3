package forward

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// dialLimit is how many connections may be under way to the loopback inside the sandbox, each by a
// process of runsc.
const dialLimit = 4

// partingPatience is how long the loopback inside the sandbox may be silent once the client has nothing
// more for it, of which gVisor's relay cannot tell it without ending the answer too. Containerd waits no
// longer.
const partingPatience = time.Second

// partingLimit bounds how long the sandbox may take to let go of a connection.
const partingLimit = 5 * time.Second

var errHeld = errors.New("sandbox is paused, or being saved")

// inside keeps the connections to the loopback inside the sandbox. None may be open while the sandbox is
// saved: their ends there belong to no process of the pod but to gVisor, which cannot save them, and fails.
type inside struct {
	slots chan struct{} // holds a token for each connection under way

	mu   sync.Mutex
	open *epoch // nil: none may be made
}

// epoch is the time between two saves.
type epoch struct {
	ctx    context.Context
	end    context.CancelFunc
	within sync.WaitGroup
}

func newInside() *inside {
	i := &inside{slots: make(chan struct{}, dialLimit)}
	i.allow()
	return i
}

// allow lets connections be made.
func (i *inside) allow() {
	i.mu.Lock()
	defer i.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	i.open = &epoch{ctx: ctx, end: cancel}
}

// forbid ends all connections, waits for those under way, and lets none be made.
func (i *inside) forbid() {
	i.mu.Lock()
	e := i.open
	i.open = nil
	i.mu.Unlock()
	if e != nil {
		e.end()
		e.within.Wait()
	}
}

func (i *inside) enter() (*epoch, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open == nil {
		return nil, errHeld
	}
	i.open.within.Add(1)
	return i.open, nil
}

// do makes a connection and, if that succeeds, uses it. The context of its use ends with ctx, or when
// connections are forbidden; that of its making with ctx alone, for what gVisor has begun it ends.
func (i *inside) do(ctx context.Context, dial func(context.Context) (Stream, error),
	use func(context.Context, *end),
) error {
	e, err := i.enter()
	if err != nil {
		return err
	}
	defer e.within.Done()
	using, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(errHeld) })()
	select {
	case i.slots <- struct{}{}:
	case <-using.Done():
		return context.Cause(using)
	}
	s, err := dial(ctx)
	<-i.slots
	if err != nil {
		return err
	}
	use(using, &end{Stream: parting{s}, patience: partingPatience})
	return nil
}

// parting is a connection by way of gVisor, which ends it as a whole when one direction ends.
type parting struct{ Stream }

// CloseWrite does nothing: the answer is still to come.
func (p parting) CloseWrite() error { return nil }

// Close closes the connection when the sandbox has, or does not in time.
func (p parting) Close() error {
	err := errors.Join(p.Stream.CloseWrite(), p.SetReadDeadline(time.Now().Add(partingLimit)))
	if err == nil {
		_, err = io.Copy(io.Discard, p.Stream)
	}
	return errors.Join(err, p.Stream.Close())
}
