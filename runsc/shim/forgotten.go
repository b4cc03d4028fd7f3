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

// endUnstarted ends the process once the sandbox of its container is gone that has not been started, and cannot be any
// more. Containerd takes the container for running until then, if the request that created it was given up in time, and
// does not remove it; or it asks for its removal, for which gVisor waits without an end (see letGo).
func (c *containers) endUnstarted(id string) {
	for was := false; ; {
		time.Sleep(watchTime)
		is := !c.starts.known(id) && c.bundle.gone()
		if was && is { // if it was only one of the two, containerd may be removing it
			log.L.Warnf("container %s was not started, and its sandbox %s is gone: its shim ends", id, c.bundle.id)
			os.Exit(1)
		}
		was = is
	}
}
