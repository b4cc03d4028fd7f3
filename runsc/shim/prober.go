package shim

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"diapause.dev/cri/kubelet"
	"github.com/vishvananda/netlink"
)

// prober reports whether the kubelet of this node has made a TCP connection to a pod. The kubelet itself connects to
// pods to probe them, and for nothing else: what it forwards goes through containerd. Whether the socket at the other
// end is the kubelet's is known by its number among the kubelet's descriptors. If that cannot be found out, the
// connection is not a probe.
func prober(from, to netip.AddrPort) bool {
	pid, ok, err := kubelet.Running()
	if err != nil || !ok {
		return false
	}
	socket, err := netlink.SocketGet(net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to))
	return err == nil && has(pid, fmt.Sprintf("socket:[%d]", socket.INode))
}

// has reports whether a process has an open file of that name.
func has(pid int, name string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, fd := range all {
		if target, err := os.Readlink(filepath.Join(dir, fd)); err == nil && target == name {
			return true
		}
	}
	return false
}
