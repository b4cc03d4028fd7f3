package forward

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// dialLimit is how many connections to the loopback inside the sandbox are made at a time. Each is made by a
// process of runsc.
const dialLimit = 4

// partingPatience is how long the sandbox may stay silent after the client has sent everything. GVisor's relay
// cannot tell the sandbox so without ending the answer too. Containerd waits no longer, either.
const partingPatience = time.Second

// partingLimit bounds how long the sandbox may take to close a connection.
const partingLimit = 5 * time.Second

var errHeld = errors.New("sandbox is paused, or being saved")

// inside keeps the connections to the loopback inside the sandbox. None may be open while the sandbox is saved:
// their ends in the sandbox belong to gVisor and not to a process of the pod. GVisor cannot save such a
// connection, and fails.
type inside struct {
	slots chan struct{} // holds a token for each connection that is being made

	mu   sync.Mutex
	open *epoch // nil: connections are forbidden
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

// allow permits new connections.
func (i *inside) allow() {
	i.mu.Lock()
	defer i.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background()) // until forbid
	i.open = &epoch{ctx: ctx, end: cancel}
}

// forbid ends all connections, waits until those under way have ended, and refuses new ones.
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

// do makes a connection and, if that succeeds, uses it. The context of the use ends with ctx, or when connections
// are forbidden. The context of dial ends with ctx alone, because gVisor completes a connection that it has
// begun.
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

// parting is a connection through gVisor. GVisor ends both directions when one ends.
type parting struct{ Stream }

// CloseWrite does nothing: the answer is still to come.
func (p parting) CloseWrite() error { return nil }

// Close closes the connection once the sandbox has closed its end, or when partingLimit is over.
func (p parting) Close() error {
	err := errors.Join(p.Stream.CloseWrite(), p.SetReadDeadline(time.Now().Add(partingLimit)))
	if err == nil {
		_, err = io.Copy(io.Discard, p.Stream)
	}
	return errors.Join(err, p.Stream.Close())
}
