package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"diapause.dev/runsc/netns"
)

// Watch counts what comes for a pod, whose sandbox is the process pid, until ctx is done. Answers to what the pod has
// sent come for it, too. Who calls it needs CAP_SYS_ADMIN and CAP_NET_RAW.
func Watch(ctx context.Context, pid int) ([]Count, error) {
	ns, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var f *os.File
	if err := ns.Do(func() (err error) { f, err = socket(nil); return err }); err != nil {
		return nil, err
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return count(f)
}

// socket returns a socket that gets the beginning of each frame at the interfaces of this network namespace, or of
// those that a filter accepts.
func socket(filter []bpf.Instruction) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if filter != nil {
		err := Attach(fd, filter)
		if err == nil { // the statistics are wanted, and no frames: the kernel makes it its least
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("packet socket: %w", err), unix.Close(fd))
		}
	}
	const every = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: every}); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket: bind: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}

// enough is as much of a frame as is looked at: headers with the options of IPv4.
const enough = etherHeader + 60 + 4

// count counts frames until the deadline of the socket.
func count(f *os.File) ([]Count, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	seen, buffer := make(tally), make([]byte, enough)
	for {
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, err := unix.Recvfrom(int(fd), buffer, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				return false
			}
			if failed = err; err != nil {
				return true
			}
			if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype != unix.PACKET_OUTGOING &&
				at.Hatype != unix.ARPHRD_LOOPBACK {
				seen.add(flowOf(buffer[:n]))
			}
			return true
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return seen.counts(), nil
		}
		if err := errors.Join(err, failed); err != nil {
			return nil, fmt.Errorf("packet socket: %w", err)
		}
	}
}
