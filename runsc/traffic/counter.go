package traffic

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"diapause.dev/runsc/netns"
)

// Counter counts the packets of ignored traffic that come for a pod. It belongs to one goroutine.
type Counter struct {
	file  *os.File // nobody reads it
	total uint64
}

// Count counts from now on what comes for a pod, whose sandbox is the process pid. It counts packets as the kernel
// counts those of IP (InReceives in proc_pid_net(5)). Who calls it needs CAP_SYS_ADMIN and CAP_NET_RAW.
func (f *Filter) Count(pid int) (*Counter, error) {
	ns, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	c := new(Counter)
	err = ns.Do(func() (err error) { c.file, err = socket(f.kernel()); return err })
	return c, err
}

// Read returns how many have come.
func (c *Counter) Read() (uint64, error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return c.total, err
	}
	var stats *unix.TpacketStats // since it was last asked for
	closed := raw.Control(func(fd uintptr) {
		stats, err = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	if closed != nil || err != nil {
		return c.total, fmt.Errorf("packet socket: statistics: %w", errors.Join(closed, err))
	}
	c.total += uint64(stats.Packets) // with those that the socket has no room for
	return c.total, nil
}

// Close ends the counting.
func (c *Counter) Close() error { return c.file.Close() }

// Attach has a packet socket get only the frames that a program accepts.
func Attach(fd int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, x := range raw {
		filter[i] = unix.SockFilter{Code: x.Op, Jt: x.Jt, Jf: x.Jf, K: x.K}
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err != nil {
		return fmt.Errorf("attach a filter: %w", err)
	}
	return nil
}
