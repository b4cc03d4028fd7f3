package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxLinks bounds the numbers of links: each has four addresses of 10.78.0.0/16.
const maxLinks = 1 << 14

// link is a network namespace for one sandbox, which is connected to the bed's by a pair of devices. Each sandbox needs
// a new one: runsc takes the addresses off the device.
type link struct {
	path string // of the namespace
	ip   net.IP // of the sandbox
	host string // name of the device outside
}

// newLink makes the link of that number.
func newLink(number int) (*link, error) {
	if number >= maxLinks {
		return nil, fmt.Errorf("network: more than %d sandboxes", maxLinks)
	}
	ip := func(n int) net.IP { return net.IPv4(10, 78, byte(number>>6), byte(number<<2)+byte(n)) }
	l := &link{path: fmt.Sprintf("%s/link-%d", runDir, number), ip: ip(2), host: fmt.Sprintf("bench%d", number)}
	if err := os.WriteFile(l.path, nil, 0o600); err != nil {
		return nil, err
	}
	outside, err := os.Open("/proc/thread-self/ns/net") // the process's first thread may have gone inside
	if err != nil {
		return nil, err
	}
	defer outside.Close()
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: this thread ends in the other namespace
		made <- l.makeInside(int(outside.Fd()))
	}()
	if err = <-made; err == nil {
		err = giveAddress(l.host, ip(1))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network: link %d: %w", number, err), l.close())
	}
	return l, nil
}

// makeInside moves the thread into a new namespace, and makes the devices.
func (l *link) makeInside(outside int) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", l.path, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: l.host, PeerNamespace: netlink.NsFd(outside),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	return giveAddress("eth0", l.ip)
}

// giveAddress gives a device an address, and brings it up.
func giveAddress(name string, ip net.IP) error {
	device, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	network := &net.IPNet{IP: ip, Mask: net.CIDRMask(30, 32)}
	if err := netlink.AddrAdd(device, &netlink.Addr{IPNet: network}); err != nil {
		return err
	}
	return netlink.LinkSetUp(device)
}

// close removes the namespace. The devices go with it once the sandbox has ended.
func (l *link) close() error {
	err := unix.Unmount(l.path, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) { // it was never mounted
		err = nil
	}
	return errors.Join(err, os.Remove(l.path))
}
