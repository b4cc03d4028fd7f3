package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// networkNamespace is the path of a network namespace that has nothing but a loopback device.
const networkNamespace = runDir + "/netns"

// makeNetworkNamespace makes it, to stay until the bed ends.
func makeNetworkNamespace() error {
	if err := os.WriteFile(networkNamespace, nil, 0o600); err != nil {
		return err
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: this thread ends in the other namespace
		made <- enterNetworkNamespace()
	}()
	if err := <-made; err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	return nil
}

func enterNetworkNamespace() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	return unix.Mount("/proc/thread-self/ns/net", networkNamespace, "", unix.MS_BIND, "")
}
