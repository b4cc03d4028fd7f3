package sleep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"diapause.dev/runsc/netns"
	"diapause.dev/runsc/traffic"
	"golang.org/x/sys/unix"
)

// virtioHeader is how many bytes the kernel puts before each frame, in both directions (struct virtio_net_hdr). They
// say whether the checksum is still to be computed, and whether the frame is several segments: between two ends of a
// veth pair it mostly is like that.
const virtioHeader = 10

// maxFrame bounds a frame with its header. The kernel joins segments up to 64 KiB.
const maxFrame = virtioHeader + etherHeader + 64<<10

// readPause is the pause after a failed read, for instance while the interface is down.
const readPause = 100 * time.Millisecond

// Waker watches the interfaces of a pod. It always holds the packets that come for the pod. Once Answer was called, it
// also answers neighbours that ask for the pod's addresses. What the sandbox, if there is one, acknowledges is held no
// longer. Its methods may be called concurrently.
type Waker struct {
	watcher
	network *Network
	stage   atomic.Int32
	ignored *traffic.Filter
	traffic chan struct{} // closed when a packet has come that wakes the pod
	once    sync.Once
}

// watcher has what it reads at the interfaces of a pod looked at.
type watcher struct {
	sockets  []*socket
	failing  atomic.Pointer[[]Readiness] // nil: all probes succeed
	serving  sync.WaitGroup
	incoming func(s *socket, data []byte) // takes what comes for the pod: a frame behind the kernel's header
	outgoing func(s *socket, frame []byte)
}

// stage says who answers the packets that come for a pod.
type stage = int32

const (
	running stage = iota // the sandbox
	paused               // the network of the sandbox, which its snapshot does not know any more
	asleep               // the waker
)

// socket is a packet socket at one interface of the pod.
type socket struct {
	link   *link
	host   host
	file   *os.File
	probes probes

	looking sync.Mutex // held while a frame is read and looked at

	mu   sync.Mutex
	held held
}

// NewWaker watches the interfaces of a recorded network until Close. Connections that prober recognizes are no traffic,
// nor are those that it knows to be over before Pause.
// Those that begin once Answer was called are answered, and those that began before are reset. Prober may be nil.
// What is ignored wakes no pod. Once Answer was called, it is dropped, and a connection that begins is refused. If the
// other end of a veth pair is not in this process's network namespace, the error is of kind [ErrUnfit].
func NewWaker(n *Network, prober Prober, ignored []traffic.Ignored) (*Waker, error) {
	filter, err := traffic.NewFilter(ignored)
	if err != nil {
		return nil, err
	}
	w := &Waker{network: n, ignored: filter, traffic: make(chan struct{})}
	w.incoming, w.outgoing = w.take, (*socket).sent
	ns, err := netns.Open(n.path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := n.reachable(ns); err != nil {
		return nil, err
	}
	if err := w.open(n, ns, prober); err != nil {
		return nil, err
	}
	for _, s := range w.sockets {
		s.probes.note(&s.host) // those that begin from here on come as frames
	}
	w.begin()
	return w, nil
}

// open opens a socket for each interface of a network, which is in the namespace ns.
func (w *watcher) open(n *Network, ns netns.Namespace, prober Prober) error {
	err := ns.Do(func() error { return w.openAll(n, prober) })
	if err != nil {
		return errors.Join(fmt.Errorf("watch network namespace %s: %w", n.path, err), w.Close())
	}
	return nil
}

func (w *watcher) openAll(n *Network, prober Prober) error {
	for i := range n.links {
		l := &n.links[i]
		if len(l.mac) != 6 {
			return fmt.Errorf("interface %s is no Ethernet: %w", l.name, ErrNoNetwork)
		}
		f, err := packetSocket(l.index)
		if err != nil {
			return fmt.Errorf("interface %s: %w", l.name, err)
		}
		w.sockets = append(w.sockets, &socket{
			link: l, host: l.host(), file: f, probes: probes{is: prober, failing: w.failingAt},
		})
	}
	return nil
}

// failingAt returns the readiness probes of a port that fail.
func (w *watcher) failingAt(port uint16) (f failures) {
	if all := w.failing.Load(); all != nil {
		for _, r := range *all {
			if r.Port == port {
				f = append(f, r)
			}
		}
	}
	return f
}

// begin begins to read.
func (w *watcher) begin() {
	for _, s := range w.sockets {
		w.serving.Go(func() { w.serve(s) })
	}
}

// packetSocket returns a socket that gets every frame that arrives at an interface, or is sent by others through it.
func packetSocket(index int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket: headers: %w", err), unix.Close(fd))
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: network(unix.ETH_P_ALL), Ifindex: index}); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket: bind: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}

// network returns a number in network byte order.
func network(n uint16) uint16 { return n<<8 | n>>8 }

// Traffic returns a channel that is closed once a packet has come that wakes the pod.
func (w *Waker) Traffic() <-chan struct{} { return w.traffic }

// Need has the pod stay awake, or wake, as if a packet had come that wakes it.
func (w *Waker) Need() { w.once.Do(func() { close(w.traffic) }) }

// Came reports whether a packet has come that wakes the pod, or Need was called.
func (w *Waker) Came() bool {
	select {
	case <-w.traffic:
		return true
	default:
		return false
	}
}

// Quiet waits for that time. If a packet comes meanwhile that wakes the pod, it returns ErrTraffic at once.
func (w *Waker) Quiet(ctx context.Context, d time.Duration) error {
	select {
	case <-w.traffic:
		return ErrTraffic
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// catchPause is how often CatchUp looks again.
const catchPause = 100 * time.Microsecond

// CatchUp waits until all packets that have arrived so far were looked at, so that Came tells about them.
func (w *Waker) CatchUp(ctx context.Context) error {
	for _, s := range w.sockets {
		for {
			behind, err := s.behind()
			if err != nil {
				return fmt.Errorf("packets of interface %s: %w", s.link.name, err)
			}
			if !behind {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("packets of interface %s do not end: %w", s.link.name, context.Cause(ctx))
			case <-time.After(catchPause):
			}
		}
	}
	return nil
}

// behind reports whether there are frames that were not looked at.
func (s *socket) behind() (behind bool, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return false, err
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	closed := raw.Control(func(fd uintptr) {
		var size int
		size, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) // of the next frame
		behind = size > 0
	})
	return behind, errors.Join(err, closed)
}

// Pause tells the waker that the sandbox is about to be paused. What comes from now on is not in its snapshot.
func (w *Waker) Pause() { w.stage.CompareAndSwap(running, paused) }

// Answer makes the waker answer for the pod's addresses. Call it when the sandbox no longer does.
func (w *Waker) Answer() { w.stage.Store(asleep) }

// serve reads frames until the socket is closed.
func (w *watcher) serve(s *socket) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	defer s.probes.close()
	buffer := make([]byte, maxFrame)
	for {
		err := w.next(s, raw, buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			slog.Warn("read from a pod's interface", "interface", s.link.name, "error", err)
			time.Sleep(readPause)
		}
	}
}

// next waits for a frame and does what is to be done with it. One that does not fit into the buffer is dropped.
func (w *watcher) next(s *socket, raw syscall.RawConn, buffer []byte) (err error) {
	closed := raw.Read(func(fd uintptr) bool {
		s.looking.Lock()
		defer s.looking.Unlock()
		var (
			n    int
			from unix.Sockaddr
		)
		n, from, err = unix.Recvfrom(int(fd), buffer, unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false
		}
		if err != nil || n < virtioHeader || n > len(buffer) {
			return true
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
			w.outgoing(s, buffer[virtioHeader:n])
		} else {
			w.incoming(s, buffer[:n])
		}
		return true
	})
	if closed != nil {
		return os.ErrClosed
	}
	return err
}

// sent looks at a frame that the sandbox has sent.
func (s *socket) sent(frame []byte) {
	segment, ok := parseSegment(frame)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.acknowledge(&segment)
}

// take does what is to be done with a frame, which begins with the kernel's header.
func (w *Waker) take(s *socket, data []byte) {
	frame := data[virtioHeader:]
	now := w.stage.Load()
	v, reply, mine := s.probes.take(&s.host, frame, now)
	if !mine {
		v, reply = s.host.look(frame)
		if v == wake && w.ignored.Match(frame) {
			v, reply = s.host.turnAway(frame, now)
		}
	}
	switch v {
	case wakeAndAnswer:
		w.reply(s, reply)
		w.Need()
	case answer:
		w.reply(s, reply)
	case keep, wake:
		s.mu.Lock()
		s.held.add(data)
		s.mu.Unlock()
		if v == wake {
			w.Need()
		}
	}
}

// reply sends a frame, unless the sandbox itself still answers. If it is lost, the neighbour asks again.
func (w *Waker) reply(s *socket, frame []byte) {
	if w.stage.Load() != asleep {
		return
	}
	s.send(frame)
}

// send sends a frame from the pod's address.
func (s *socket) send(frame []byte) {
	if _, err := s.file.Write(append(make([]byte, virtioHeader), frame...)); err != nil {
		slog.Warn("answer for the address of a pod", "interface", s.link.name, "error", err)
	}
}

// Delivered says what became of the packets that came for a sleeping pod.
type Delivered struct {
	Sent    int
	Dropped int // beyond the bounds, or not possible to deliver
}

// Deliver sends what was held into the pod, through the other end of each interface, and holds it no longer. The pod's
// network must be up. Packets are dropped if the interface has no other end, or if that is no longer in this process's
// network namespace: TCP sends them again.
func (w *Waker) Deliver() (d Delivered, err error) {
	return w.deliver(func([]byte) bool { return true })
}

// Repeat sends what was held into a pod that has run all the time, and holds it no longer. A sandbox drops segments of
// TCP that come while it is saved, and who has sent them repeats them only after 200 ms or more. What it has
// acknowledged is not repeated, nor are packets of other protocols.
func (w *Waker) Repeat() error {
	_, err := w.deliver(func(data []byte) bool {
		_, ok := parseSegment(data[virtioHeader:])
		return ok
	})
	return err
}

// deliver sends those of the frames that were held for which send reports true.
func (w *Waker) deliver(send func([]byte) bool) (d Delivered, err error) {
	var errs []error
	for _, s := range w.sockets {
		s.mu.Lock()
		h := s.held
		s.held = held{}
		s.mu.Unlock()
		h.frames = slices.DeleteFunc(h.frames, func(data []byte) bool { return !send(data) })
		n, err := s.link.deliver(w.network.path, h.frames)
		d.Sent += n
		d.Dropped += h.dropped + len(h.frames) - n
		errs = append(errs, err)
	}
	return d, errors.Join(errs...)
}

// deliver sends frames from the other end of an interface in the namespace at path, and returns how many were sent.
func (l *link) deliver(path string, frames [][]byte) (sent int, err error) {
	if len(frames) == 0 {
		return 0, nil
	}
	ns, err := netns.Open(path)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	other, err := l.other(ns)
	if err != nil {
		return 0, err
	}
	f, err := packetSocket(other.Attrs().Index)
	if err != nil {
		return 0, fmt.Errorf("the other end of interface %s: %w", l.name, err)
	}
	defer f.Close()
	for _, frame := range frames {
		if _, err := f.Write(frame); err != nil {
			return sent, fmt.Errorf("deliver to interface %s: %w", l.name, err)
		}
		sent++
	}
	return sent, nil
}

// Close ends the reading. What a waker holds is lost.
func (w *watcher) Close() (err error) {
	for _, s := range w.sockets {
		err = errors.Join(err, s.file.Close())
	}
	w.serving.Wait()
	return err
}
