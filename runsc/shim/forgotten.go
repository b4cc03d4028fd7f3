package shim

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/log"
)

// A shim that is young checks every watchTime whether containerd still knows its container, later every watchRarely,
// and every watchDozing while it dozes: what is given up is mostly given up at the beginning, and a node has hundreds
// of shims, each of which costs processor time when it wakes up.
const (
	watchTime   = 2 * time.Second
	young       = 2 * time.Minute
	watchRarely = 30 * time.Second
	watchDozing = 10 * time.Minute
)

// ofSandbox says that this process serves a pod's sandbox container. Such a process ends with the sandbox, not
// before.
var ofSandbox atomic.Bool

// endForgotten ends the process once its container's bundle is gone. Containerd removes the bundle last. If a request
// to start a shim or to create a container is given up, containerd forgets the container. It does so even if the shim
// does not know that, or cannot end yet.
func endForgotten(bundle string) {
	for began := time.Now(); !ofSandbox.Load(); {
		pause := watchTime
		switch {
		case standing.open():
			pause = watchDozing
		case time.Since(began) > young:
			pause = watchRarely
		}
		time.Sleep(pause)
		if _, err := os.Lstat(bundle + "/config.json"); errors.Is(err, os.ErrNotExist) && !ofSandbox.Load() {
			log.L.Warn("containerd has forgotten the container: its shim ends")
			os.Exit(1)
		}
	}
}

// endUnstarted ends the process if nothing has asked to start its container, and the sandbox is gone. If the request
// that created the container was given up in time, containerd takes it for running and does not remove it.
//
// If a start was tried, the process stays until containerd knows that the container has ended. Otherwise a restarted
// containerd would take the container for created, and in a pod that never restarts its containers the kubelet would
// wait for it for ever.
func (c *containers) endUnstarted() {
	for was := false; !c.asked.Load(); {
		time.Sleep(watchTime)
		is := c.unstartable()
		if was && is { // after only one check, containerd may be removing it
			log.L.Warnf("nobody has started the container, and its sandbox %s is gone: its shim ends", c.bundle.id)
			os.Exit(1)
		}
		was = is
	}
}

// unstartable reports whether nothing has asked to start the container, and nothing can start it any more.
func (c *containers) unstartable() bool { return !c.asked.Load() && c.bundle.gone() }
