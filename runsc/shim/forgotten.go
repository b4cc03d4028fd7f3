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

// endUnstarted ends the process once the sandbox of its container is gone that nobody has asked to start. Containerd
// takes the container for running until then, if the request that created it was given up in time, and does not remove
// it. One whose start was tried has ended; a restarted containerd takes it for created if it finds it no more, and the
// kubelet starts no pod again whose containers it takes for that, if its policy is never to restart them.
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
