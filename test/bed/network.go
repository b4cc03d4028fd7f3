package bed

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// The addresses of a node. Each bed has a network namespace of its own, so they
// are the same in all.
const (
	bedIP   = "10.77.0.1"
	podCIDR = "10.77.1.0/24"
	// podCIDR6 is for the pods of a bed that is DualStack.
	podCIDR6 = "fd77:1::/64"
	// clusterCIDR holds the addresses of all pods of a cluster.
	clusterCIDR = "10.77.0.0/16"
)

// bridgeName is of the bridge that carries the bed's address. The nodes of a
// cluster are its ports.
const bridgeName = "node0"

// makeNetwork brings up the loopback device, and a bridge without ports that
// carries the node's address and the default route.
func makeNetwork() error {
	if err := loopbackUp(); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("network: add bridge: %w", err)
	}
	addr, err := netlink.ParseAddr(bedIP + "/32")
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := netlink.AddrAdd(bridge, addr); err != nil {
		return fmt.Errorf("network: add %s: %w", addr, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("network: bring up the bridge: %w", err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: everywhere}); err != nil {
		return fmt.Errorf("network: add default route: %w", err)
	}
	return setKernel()
}

var everywhere = &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("network: bring up lo: %w", err)
	}
	return nil
}

// setKernel has the network namespace forward packets, and use addresses of IPv6 at once, without asking first whether
// somebody else has them.
func setKernel() error {
	for name, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/default/accept_dad": "0"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	return nil
}
