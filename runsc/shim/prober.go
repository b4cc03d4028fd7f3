package shim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"diapause.dev/cri/kubelet"
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

func newProber() prober { return prober{kubelet: kubelet.Running} }

// IsProbe implements sleep.Prober.
func (p prober) IsProbe(c sleep.Connection) bool {
	inode, err := socketOf(c)
	return err == nil && p.descriptors()[descriptor(inode)]
}

// Open implements sleep.Prober.
func (p prober) Open(pod func(netip.Addr) bool) (all []sleep.Connection) {
	var sockets []*netlink.Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		some, err := netlink.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		sockets = append(sockets, some...)
	}
	var has map[string]bool
	for _, s := range sockets {
		c, ok := connection(s)
		if !ok || !pod(c.To.Addr()) {
			continue
		}
		if has == nil {
			has = p.descriptors()
		}
		if has[descriptor(s.INode)] {
			all = append(all, c)
		}
	}
	return all
}

// connection returns the connection of a socket. ok is false if it has none.
func connection(s *netlink.Socket) (c sleep.Connection, ok bool) {
	from, ok1 := netip.AddrFromSlice(s.ID.Source)
	to, ok2 := netip.AddrFromSlice(s.ID.Destination)
	return sleep.Connection{
		From: netip.AddrPortFrom(from.Unmap(), s.ID.SourcePort),
		To:   netip.AddrPortFrom(to.Unmap(), s.ID.DestinationPort),
	}, ok1 && ok2 && s.ID.DestinationPort != 0
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

// Where the parts of the kernel's struct inet_diag_msg are (linux/inet_diag.h), in bytes: the ports and addresses of
// both ends, and the number of the socket.
const (
	diagAnswerEnds  = 4
	diagEndsSize    = 36
	diagAnswerInode = 68
	diagAnswerSize  = 72
)

// socketOf returns the inode of this node's socket of a connection. SocketGet of package netlink does not serve: it
// asks for all sockets with these ports, to whatever address.
func socketOf(c sleep.Connection) (inode uint32, err error) {
	family, size := byte(unix.AF_INET), 4
	if c.From.Addr().Is6() {
		family, size = unix.AF_INET6, 16
	}
	ends := make([]byte, diagEndsSize)
	binary.BigEndian.PutUint16(ends, c.From.Port())
	binary.BigEndian.PutUint16(ends[2:], c.To.Port())
	copy(ends[4:4+size], c.From.Addr().AsSlice())
	copy(ends[20:20+size], c.To.Addr().AsSlice())
	ask := []byte{family, unix.IPPROTO_TCP, 0, 0, 0xff, 0xff, 0xff, 0xff} // in any state
	ask = append(ask, ends...)
	ask = append(ask, make([]byte, 4)...)               // at any interface
	ask = append(ask, bytes.Repeat([]byte{0xff}, 8)...) // INET_DIAG_NOCOOKIE
	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	r.AddRawData(ask)
	answers, err := r.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil {
		return 0, fmt.Errorf("socket of %v: %w", c, err)
	}
	for _, a := range answers { // without a connection, the kernel answers with a socket that listens at the port
		if len(a) >= diagAnswerSize && bytes.Equal(a[diagAnswerEnds:diagAnswerEnds+diagEndsSize], ends) {
			return binary.NativeEndian.Uint32(a[diagAnswerInode:]), nil
		}
	}
	return 0, fmt.Errorf("socket of %v: %w", c, os.ErrNotExist)
}
