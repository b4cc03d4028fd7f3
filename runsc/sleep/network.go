package sleep

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"diapause.dev/runsc/netns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoNetwork is the error for a pod that has no interface with an address in a network namespace of its own.
var ErrNoNetwork = errors.New("the pod has no network of its own")

// Network is the configuration of a pod's network namespace as the network plugin has made it. Runsc takes the
// addresses away when a sandbox starts, and the routes go with them.
type Network struct {
	path  string
	links []link
}

// link is an interface of the pod.
type link struct {
	index     int
	name      string
	mac       net.HardwareAddr
	veth      bool // it is one end of a veth pair
	peer      int  // index of the other end
	addresses []netlink.Addr
	routes    []netlink.Route
}

// RecordNetwork reads the configuration of the network namespace at path. Call it before the sandbox starts.
func RecordNetwork(path string) (*Network, error) {
	n := &Network{path: path}
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := ns.Do(n.record); err != nil {
		return nil, fmt.Errorf("record network namespace %s: %w", path, err)
	}
	if len(n.links) == 0 {
		return nil, fmt.Errorf("network namespace %s: %w", path, ErrNoNetwork)
	}
	return n, nil
}

func (n *Network) record() error {
	all, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range all {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback != 0 || a.Flags&net.FlagUp == 0 {
			continue
		}
		x := link{index: a.Index, name: a.Name, mac: slices.Clone(a.HardwareAddr)}
		if l.Type() == "veth" {
			x.veth, x.peer = true, a.ParentIndex
		}
		if x.addresses, err = netlink.AddrList(l, netlink.FAMILY_ALL); err != nil {
			return fmt.Errorf("addresses of %s: %w", a.Name, err)
		}
		if x.routes, err = netlink.RouteList(l, netlink.FAMILY_ALL); err != nil {
			return fmt.Errorf("routes of %s: %w", a.Name, err)
		}
		if len(x.addresses) > 0 {
			n.links = append(n.links, x)
		}
	}
	return nil
}

// PutBack makes the namespace as it was when it was recorded. What is there already stays.
func (n *Network) PutBack() error {
	ns, err := netns.Open(n.path)
	if err != nil {
		return err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		for _, l := range n.links {
			if err := l.putBack(); err != nil {
				return fmt.Errorf("interface %s: %w", l.name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put back network namespace %s: %w", n.path, err)
	}
	return nil
}

func (l *link) putBack() error {
	dev, err := netlink.LinkByIndex(l.index)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(dev); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	for _, a := range l.addresses {
		a.Flags &= unix.IFA_F_NOPREFIXROUTE
		if a.IP.To4() == nil {
			a.Flags |= unix.IFA_F_NODAD // nobody else has had it meanwhile, and the sandbox must not wait
		}
		if err := netlink.AddrReplace(dev, &a); err != nil {
			return fmt.Errorf("address %s: %w", a.IPNet, err)
		}
	}
	for _, r := range sorted(l.routes) {
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("route %s: %w", r, err)
		}
	}
	return nil
}

// sorted returns the routes that the kernel does not make by itself, those without a gateway first: a gateway must be
// reachable when its route is added.
func sorted(routes []netlink.Route) []netlink.Route {
	var near, far []netlink.Route
	for _, r := range routes {
		switch {
		case r.Protocol == unix.RTPROT_KERNEL:
		case r.Gw == nil && r.Via == nil && len(r.MultiPath) == 0:
			near = append(near, r)
		default:
			far = append(far, r)
		}
	}
	return append(near, far...)
}

// other returns the other end of an interface in the namespace ns, if that is in this process's namespace. Its number
// alone does not say so: it may be in a third namespace, and an interface of another pod may have that number here.
func (l *link) other(ns netns.Namespace) (netlink.Link, error) {
	elsewhere := fmt.Errorf("the other end of interface %s is not in the network namespace of the pod's shim", l.name)
	if !l.veth {
		return nil, elsewhere
	}
	other, err := netlink.LinkByIndex(l.peer)
	if err != nil || other.Type() != "veth" || other.Attrs().ParentIndex != l.index {
		return nil, errors.Join(elsewhere, err)
	}
	// The kernel numbers the namespaces that a namespace knows of. Those of links are known. -1 is none.
	id, err := netlink.GetNetNsIdByFd(int(ns.Fd()))
	if err != nil || id < 0 || other.Attrs().NetNsID != id {
		return nil, errors.Join(elsewhere, err)
	}
	return other, nil
}

// reachable returns an error if packets could not be delivered to an interface because its other end is elsewhere.
// Those that have no other end are left out: what comes for them is dropped.
func (n *Network) reachable(ns netns.Namespace) error {
	for i := range n.links {
		if !n.links[i].veth {
			continue
		}
		if _, err := n.links[i].other(ns); err != nil {
			return fmt.Errorf("%w: packets for it could not be delivered: %w", ErrUnfit, err)
		}
	}
	return nil
}

// host returns the part of the interface that the waker answers for.
func (l *link) host() host {
	h := host{mac: [6]byte(l.mac), addresses: make(map[netip.Addr]bool)}
	for _, a := range l.addresses {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			h.addresses[ip.Unmap()] = true
		}
	}
	return h
}
