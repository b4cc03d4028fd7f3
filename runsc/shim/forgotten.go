package shim

import (
	"errors"
	"os"
	"time"

	"github.com/containerd/log"
)

// watchBundle is how often a shim looks whether containerd still knows its container.
const watchBundle = 2 * time.Second

// endForgotten ends the process once the bundle of its container is gone, which containerd removes last. If a request
// to create a container is given up, containerd forgets the container even if its shim has not heard of that, or cannot
// end yet.
func endForgotten(bundle string) {
	for {
		time.Sleep(watchBundle)
		if _, err := os.Lstat(bundle); errors.Is(err, os.ErrNotExist) {
			log.L.Warnf("containerd has forgotten the container of %s: its shim ends", bundle)
			os.Exit(1)
		}
	}
}
