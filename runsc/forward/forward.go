package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// limit is how many connections are relayed at a time. Further ones wait to be accepted.
const limit = 128

// connectLimit bounds how long a connection to the pod's address may take to be answered.
const connectLimit = 3 * time.Second

// acceptPause is the pause after a failed accept: there may be no free descriptors.
const acceptPause = 100 * time.Millisecond

// patience is how long one end may stay silent after the other end has sent everything. The kernel keeps a
// connection in that state equally long.
const patience = time.Minute

// ErrKernelStack is the error for a namespace that still has its addresses although its sandbox was started. The
// sandbox uses the kernel's network stack, so its ports are in the namespace already.
var ErrKernelStack = errors.New("sandbox uses the network stack of the kernel")

// Options say which sandbox is forwarded to.
type Options struct {
	Sandbox   string       // id
	Namespace string       // path of the pod's network namespace
	Addresses []netip.Addr // of the pod, in the order in which they are tried
	// Ready returns an error while nothing may connect to the sandbox. It may be called by many goroutines at once.
	Ready func(context.Context) error
	// Dial connects to a port of the loopback inside the sandbox. It must return soon after its context ends, and
	// before long in any case, because Hold waits for it. It may be called by a few goroutines at once.
	Dial func(ctx context.Context, port int) (Stream, error)
	// Use, if not nil, is called for each connection, by many goroutines at once. It returns what is called at the
	// connection's end.
	Use func() (end func())
}

// Forwarder forwards to one sandbox.
type Forwarder struct {
	Options
	ns       namespace
	listener *net.TCPListener
	inside   *inside
	slots    chan struct{} // holds a token for each connection
	cancel   context.CancelFunc
	serving  sync.WaitGroup
}

// Open begins to forward to a sandbox that has been started. Close ends it.
func Open(ctx context.Context, o Options) (*Forwarder, error) {
	ns, err := openNamespace(o.Namespace)
	if err != nil {
		return nil, err
	}
	l, err := ns.capture(ctx)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Forwarder{
		Options: o, ns: ns, listener: l, inside: newInside(), slots: make(chan struct{}, limit),
		cancel: cancel,
	}
	f.serving.Go(func() { f.serve(ctx) })
	return f, nil
}

// capture returns a listener that gets every connection to the namespace's loopback.
func (n namespace) capture(ctx context.Context) (*net.TCPListener, error) {
	kept, err := n.addresses()
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 {
		return nil, fmt.Errorf("network namespace %s has address %v: %w", n.Name(), kept[0], ErrKernelStack)
	}
	l, err := n.listen(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.divert(l.Addr().(*net.TCPAddr)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close ends all connections and leaves the namespace as it was.
func (f *Forwarder) Close() error {
	f.cancel()
	err := errors.Join(f.ns.restore(), f.listener.Close())
	f.serving.Wait()
	return errors.Join(err, f.ns.Close())
}

// Hold ends all connections that lead through gVisor, and refuses new ones until Allow is called.
func (f *Forwarder) Hold() { f.inside.forbid() }

// Allow undoes Hold.
func (f *Forwarder) Allow() { f.inside.allow() }

// serve accepts connections until the listener is closed.
func (f *Forwarder) serve(ctx context.Context) {
	for {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		client, err := f.listener.AcceptTCP()
		if err == nil {
			f.serving.Go(func() {
				f.forward(ctx, client)
				<-f.slots
			})
			continue
		}
		<-f.slots
		if errors.Is(err, net.ErrClosed) {
			return
		}
		slog.Warn("accept a connection to the sandbox's loopback", "sandbox", f.Sandbox, "error", err)
		select {
		case <-time.After(acceptPause):
		case <-ctx.Done():
			return
		}
	}
}

// forward relays one connection.
func (f *Forwarder) forward(ctx context.Context, client *net.TCPConn) {
	if f.Use != nil {
		defer f.Use()()
	}
	port := client.LocalAddr().(*net.TCPAddr).Port
	if err := f.relay(ctx, &end{Stream: client, patience: patience}, port); err != nil {
		slog.Info("connect to a port of the sandbox", "sandbox", f.Sandbox, "port", port, "error", err)
	}
}

// relay connects an end to a port of the sandbox and copies between them. If it cannot connect, it resets the
// end, so that the client sees a failure and not a regular end.
func (f *Forwarder) relay(ctx context.Context, near *end, port int) error {
	if err := f.Ready(ctx); err != nil {
		return errors.Join(err, near.reset())
	}
	use := func(ctx context.Context, far *end) {
		if err := relay(ctx, near, far); err != nil {
			slog.Debug("relay a port of the sandbox", "sandbox", f.Sandbox, "port", port, "error", err)
		}
	}
	far, err := f.dialAddress(ctx, port)
	if err == nil {
		use(ctx, &end{Stream: far, patience: patience})
		return nil
	}
	if closed(err) {
		err = f.inside.do(ctx, func(ctx context.Context) (Stream, error) { return f.Dial(ctx, port) }, use)
	}
	if err != nil {
		return errors.Join(err, near.reset())
	}
	return nil
}

// dialAddress connects to a port at one of the pod's addresses.
func (f *Forwarder) dialAddress(ctx context.Context, port int) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	var d net.Dialer
	var err error = syscall.ECONNREFUSED // if there is no address
	for _, a := range f.Addresses {
		var c net.Conn
		if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(port))); err == nil {
			return c.(*net.TCPConn), nil
		}
		if !closed(err) {
			break
		}
	}
	return nil, err
}

// closed reports whether nothing listens, as far as can be told. A listener that does not answer in time is not
// closed: dialing it again through gVisor would block every other request to the sandbox.
func closed(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH)
}
