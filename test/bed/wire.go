package bed

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
)

// wire ties a node to the bed's bridge, and makes its pods reachable.
func (n *Node) wire() error {
	if err := n.plug(); err != nil {
		return fmt.Errorf("network of %s: %w", n.Name, err)
	}
	if err := inNamespaces(n.pid(), n.address); err != nil {
		return fmt.Errorf("network of %s: %w", n.Name, err)
	}
	return n.redirectService()
}

// plug makes the node's device and its other end, which has the node's name, and
// the route to the node's pods.
func (n *Node) plug() error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex, attrs.Flags = n.Name, bridge.Attrs().Index, net.FlagUp
	if err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: nodeDevice,
		PeerNamespace: netlink.NsPid(n.pid()),
	}); err != nil {
		return fmt.Errorf("add a pair of devices: %w", err)
	}
	_, pods, err := net.ParseCIDR(n.PodCIDR)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: bridge.Attrs().Index, Dst: pods, Gw: net.ParseIP(n.IP),
		Flags: int(netlink.FLAG_ONLINK),
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("add a route to %s: %w", pods, err)
	}
	return nil
}

// unplug removes the node's device at once; the kernel would do so some time
// after the node's end.
func (n *Node) unplug() error {
	link, err := netlink.LinkByName(n.Name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
		return fmt.Errorf("remove the device of %s: %w", n.Name, err)
	}
	return nil
}

// address gives the node's device its address. It runs in the node.
func (n *Node) address() error {
	if err := loopbackUp(); err != nil {
		return err
	}
	device, err := netlink.LinkByName(nodeDevice)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(n.IP + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(device, addr); err != nil {
		return fmt.Errorf("add %s: %w", addr, err)
	}
	if err := netlink.LinkSetUp(device); err != nil {
		return fmt.Errorf("bring up %s: %w", nodeDevice, err)
	}
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: device.Attrs().Index, Dst: everywhere,
		Gw: net.ParseIP(bedIP),
	}); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return setKernel()
}

// redirectService makes the Service of the API reachable, which is all that is
// there of what kube-proxy does.
func (n *Node) redirectService() error {
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		rule := fmt.Sprintf("--wait -t nat -A %s -d %s -p tcp --dport 443 -j DNAT --to-destination %s", chain, serviceIP,
			apiAddress)
		_, err := output(exec.Command("iptables", strings.Fields(rule)...), n.Run)
		if err != nil {
			return err
		}
	}
	return nil
}
