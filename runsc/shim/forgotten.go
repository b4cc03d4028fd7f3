package shim

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/log"
)

// watchTime is how often a shim looks whether anybody will still ask for its container.
const watchTime = 2 * time.Second

// ofSandbox says that this process serves the container of a pod's sandbox. It ends with the sandbox, not before.
var ofSandbox atomic.Bool

// endForgotten ends the process once the bundle of its container is gone, which containerd removes last. If a request
// to start a shim or to create a container is given up, containerd forgets the container even if its shim has not heard
// of that, or cannot end yet.
func endForgotten(bundle string) {
	for !ofSandbox.Load() {
		time.Sleep(watchTime)
		if _, err := os.Lstat(bundle + "/config.json"); errors.Is(err, os.ErrNotExist) && !ofSandbox.Load() {
			log.L.Warn("containerd has forgotten the container: its shim ends")
			os.Exit(1)
		}
	}
}

// endUnstarted ends the process if its container has not been asked to start, and its sandbox is gone. Containerd takes
// such a container for running, and does not remove it, if the request that created it was given up in time.
//
// If a start was tried, the process stays until containerd knows that the container has ended. A containerd that starts
// again would call the container created otherwise, and the kubelet would wait for it for ever in a pod that never
// restarts its containers.
func (c *containers) endUnstarted() {
	for was := false; ; {
		time.Sleep(watchTime)
		is := c.unstartable()
		if was && is { // if it was only one of the two, containerd may be removing it
			log.L.Warnf("nobody has started the container, and its sandbox %s is gone: its shim ends", c.bundle.id)
			os.Exit(1)
		}
		was = is
	}
}

// unstartable reports whether nobody has asked to start the container, and nobody can.
func (c *containers) unstartable() bool { return !c.asked.Load() && c.bundle.gone() }
