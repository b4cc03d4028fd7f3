package kubelet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"diapause.dev/runsc/sleep"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// prober knows the TCP connections of this node's kubelet to a pod. The kubelet itself connects to pods to probe them,
// and for nothing else: what it forwards goes through containerd. Whether the socket at the other end is the kubelet's
// is known by its number among the kubelet's descriptors. If that cannot be found out, the connection is not a probe.
type prober struct {
	kubelet func() (pid int, ok bool, err error)
}

var _ sleep.Prober = prober{}

// NewProber returns a prober that looks for the connections of this node's kubelet, which f finds.
func NewProber(f *Finder) sleep.Prober { return prober{kubelet: f.Running} }

// IsProbe implements sleep.Prober.
func (p prober) IsProbe(c sleep.Connection) bool {
	s, err := socketOf(c)
	return err == nil && p.descriptors()[descriptor(s.inode)]
}

// Over implements sleep.Prober.
func (prober) Over(c sleep.Connection) bool {
	s, err := socketOf(c)
	return err == nil && s.over()
}

// Open implements sleep.Prober.
func (p prober) Open(pod []netip.Addr) (all []sleep.Connection) {
	var has map[string]bool
	for _, a := range pod {
		for _, s := range socketsTo(a) {
			if has == nil {
				has = p.descriptors()
			}
			if has[descriptor(s.inode)] || s.over() {
				all = append(all, s.Connection)
			}
		}
	}
	return all
}

// descriptor is what the kernel shows for a descriptor of a socket with that inode.
func descriptor(inode uint32) string { return fmt.Sprintf("socket:[%d]", inode) }

// descriptors returns what the kubelet has open.
func (p prober) descriptors() map[string]bool {
	pid, ok, err := p.kubelet()
	if err != nil || !ok {
		return nil
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	fds, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	has := make(map[string]bool, len(fds))
	for _, fd := range fds {
		if target, err := os.Readlink(filepath.Join(dir, fd)); err == nil {
			has[target] = true
		}
	}
	return has
}

// Where the parts of the kernel's struct inet_diag_msg are (linux/inet_diag.h), in bytes: the state of the socket, the
// ports and addresses of both ends, how much was sent and not acknowledged, and the number of the socket.
const (
	diagAnswerState = 1
	diagAnswerEnds  = 4
	diagEndsSize    = 36
	diagAnswerQueue = 60
	diagAnswerInode = 68
	diagAnswerSize  = 72
)

// nodeSocket is a socket of this node with its connection.
type nodeSocket struct {
	sleep.Connection
	inode uint32 // 0: no process has it
	state byte
	queue uint32 // sequence numbers that were sent and not acknowledged
}

// over reports whether the socket's process has closed it, and the other end has acknowledged all data. The segment
// that says so takes a sequence number itself.
func (s nodeSocket) over() bool {
	return s.inode == 0 && s.queue <= 1 && closedStates&(1<<s.state) != 0
}

// socketOf returns this node's socket of a connection. SocketGet of package netlink does not serve: it asks for all
// sockets with these ports, to whatever address.
func socketOf(c sleep.Connection) (s nodeSocket, err error) {
	ends := make([]byte, diagEndsSize)
	binary.BigEndian.PutUint16(ends, c.From.Port())
	binary.BigEndian.PutUint16(ends[2:], c.To.Port())
	copy(ends[4:20], c.From.Addr().AsSlice())
	copy(ends[20:], c.To.Addr().AsSlice())
	answers, err := askDiag(0, familyOf(c.From.Addr()), anyState, ends, nil)
	if err != nil {
		return s, fmt.Errorf("socket of %v: %w", c, err)
	}
	for _, a := range answers { // without a connection, the kernel answers with a socket that listens at the port
		if len(a) >= diagAnswerSize && bytes.Equal(a[diagAnswerEnds:diagAnswerEnds+diagEndsSize], ends) {
			s.read(a)
			return s, nil
		}
	}
	return s, fmt.Errorf("socket of %v: %w", c, os.ErrNotExist)
}

// socketsTo returns this node's sockets that are connected to an address. The kernel picks them: a node may have very
// many others. If some cannot be found out, it returns the others.
func socketsTo(a netip.Addr) (all []nodeSocket) {
	families := []byte{unix.AF_INET6} // such a socket may be connected to an address of IPv4, too
	if a.Is4() {
		families = append(families, unix.AF_INET)
	}
	for _, family := range families {
		answers, err := askDiag(unix.NLM_F_DUMP, family, openStates, make([]byte, diagEndsSize), onlyTo(a))
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		for _, answer := range answers {
			if s, ok := readSocket(family, answer); ok && s.To.Addr() == a {
				all = append(all, s)
			}
		}
	}
	return all
}

func familyOf(a netip.Addr) byte {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Sets of states of sockets. No process has a socket open that is in TIME_WAIT, and one that listens has no connection.
// A socket is in one of closedStates once its process has closed it.
const (
	anyState     = 0xffff_ffff
	openStates   = anyState &^ (1<<unix.BPF_TCP_TIME_WAIT | 1<<unix.BPF_TCP_LISTEN)
	closedStates = 1<<unix.BPF_TCP_FIN_WAIT1 | 1<<unix.BPF_TCP_FIN_WAIT2 | 1<<unix.BPF_TCP_CLOSING |
		1<<unix.BPF_TCP_LAST_ACK | 1<<unix.BPF_TCP_TIME_WAIT
)

// askDiag asks the kernel for TCP sockets of a family (struct inet_diag_req_v2) in these states with these ends, or for
// all in these states with flag NLM_F_DUMP. Filter is an attribute of the request, or empty.
func askDiag(flags int, family byte, states uint32, ends, filter []byte) (answers [][]byte, err error) {
	ask := binary.NativeEndian.AppendUint32([]byte{family, unix.IPPROTO_TCP, 0, 0}, states)
	ask = append(ask, ends...)
	ask = append(ask, make([]byte, 4)...)               // at any interface
	ask = append(ask, bytes.Repeat([]byte{0xff}, 8)...) // INET_DIAG_NOCOOKIE
	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, flags)
	r.AddRawData(append(ask, filter...))
	return r.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
}

// onlyTo returns the attribute that has the kernel answer with sockets that are connected to an address only: one
// operation of struct inet_diag_bc_op, with its struct inet_diag_hostcond.
func onlyTo(a netip.Addr) []byte {
	const (
		bytecode = 1 // INET_DIAG_REQ_BYTECODE
		destCond = 8 // INET_DIAG_BC_D_COND
		fixed    = 12
	)
	size := fixed + a.BitLen()/8
	op := []byte{destCond, byte(size)}                              // if it holds, go on after it: that is the end
	op = binary.NativeEndian.AppendUint16(op, uint16(size+4))       // or else beyond the end, which refuses the socket
	op = append(op, familyOf(a), byte(a.BitLen()), 0, 0)            // the whole address
	op = append(append(op, 0xff, 0xff, 0xff, 0xff), a.AsSlice()...) // at any port
	return nl.NewRtAttr(bytecode, op).Serialize()
}

// readSocket reads the kernel's answer about a socket. ok is false if it has no connection.
func readSocket(family byte, answer []byte) (s nodeSocket, ok bool) {
	if len(answer) < diagAnswerSize {
		return s, false
	}
	ends, size := answer[diagAnswerEnds:], 4
	if family == unix.AF_INET6 {
		size = 16
	}
	from, _ := netip.AddrFromSlice(ends[4 : 4+size])
	to, _ := netip.AddrFromSlice(ends[20 : 20+size])
	s.From = netip.AddrPortFrom(from.Unmap(), binary.BigEndian.Uint16(ends))
	s.To = netip.AddrPortFrom(to.Unmap(), binary.BigEndian.Uint16(ends[2:]))
	s.read(answer)
	return s, s.To.Port() != 0
}

// read reads what the kernel says about a socket besides its ends.
func (s *nodeSocket) read(answer []byte) {
	s.state = answer[diagAnswerState]
	s.queue = binary.NativeEndian.Uint32(answer[diagAnswerQueue:])
	s.inode = binary.NativeEndian.Uint32(answer[diagAnswerInode:])
}
