package connections

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a connected stream socket that wakes the process only when there is something to read. Go's connections
// wake it also when the peer has taken what was written, which doubles what an answer costs a process that otherwise
// sleeps. For that the socket is in an epoll of its own, with the events of reading alone, and that epoll is what Go's
// runtime waits for.
//
// Its system calls return at once, and Go's runtime is not told of them: it would wake a thread to see that they do.
//
// One goroutine may receive, and any may send and close, at the same time.
type socket struct {
	fd     int      // does not block
	events *os.File // the epoll
	ready  syscall.RawConn
	once   sync.Once // for close

	mu     sync.Mutex // held while fd is written to or closed
	closed bool
}

// takeOver makes a socket of a connection, which it then closes.
func takeOver(conn net.Conn) (*socket, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{fd: -1}
	var dupErr error
	err = raw.Control(func(fd uintptr) { s.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = os.NewSyscallError("fcntl", dupErr)
	}
	if err != nil {
		return nil, err
	}
	if err := s.watch(); err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	conn.Close()
	return s, nil
}

// watch makes the epoll.
func (s *socket) watch() error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	reading := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET}
	err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, s.fd, reading)
	if err == nil {
		err = unix.SetNonblock(epoll, true) // only such a file is one that Go's runtime waits for
	}
	if err != nil {
		unix.Close(epoll)
		return fmt.Errorf("epoll: %w", err)
	}
	s.events = os.NewFile(uintptr(epoll), "epoll")
	s.ready, err = s.events.SyscallConn()
	return err
}

// receiving calls f until it returns true: at once, and then whenever something has come since the last call began. It
// fails when the socket is closed, and never calls f after that.
func (s *socket) receiving(f func() bool) error {
	if err := s.ready.Read(func(uintptr) bool { return f() }); err != nil {
		return net.ErrClosed
	}
	return nil
}

// receive reads what there is. If that is nothing, the error is EAGAIN; 0 bytes are the end. It is for receiving's
// argument to call.
func (s *socket) receive(p []byte) (int, error) { return rawIO(unix.SYS_READ, s.fd, p) }

// send writes all of p. While the peer does not take it, it waits.
func (s *socket) send(p []byte) (done int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for done < len(p) && err == nil {
		if s.closed {
			return done, net.ErrClosed
		}
		var n int
		n, err = rawIO(unix.SYS_WRITE, s.fd, p[done:])
		done += n
		if err == unix.EAGAIN {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, -1) // close ends it
			if err == unix.EINTR {
				err = nil
			}
		}
	}
	return done, os.NewSyscallError("write", err)
}

// close closes the socket. Who receives and sends gets an error.
func (s *socket) close() error {
	s.once.Do(func() {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // fails if the peer has gone, and then nobody waits to send
		s.events.Close()                        // returns when nobody receives any more
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
		unix.Close(s.fd)
	})
	return nil
}

// rawIO calls read or write with a file descriptor that does not block.
func rawIO(call uintptr, fd int, p []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
