package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
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

// ofSandbox is the sandbox container that this process serves, if it serves one. Such a process ends with the sandbox.
var ofSandbox atomic.Pointer[containers]

// endForgotten ends the process once its container's bundle is gone. Containerd removes the bundle last. If a request
// to start a shim or to create a container is given up, containerd forgets the container. It does so even if the shim
// does not know that, or cannot end yet.
//
// A sandbox may still be created then. It is removed first: nobody else would.
func endForgotten(bundle string) {
	for began := time.Now(); ; {
		pause := watchTime
		switch {
		case standing.open():
			pause = watchDozing
		case time.Since(began) > young:
			pause = watchRarely
		}
		time.Sleep(pause)
		if _, err := os.Lstat(specPath(bundle)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if c := ofSandbox.Load(); c != nil {
			time.Sleep(endLimit) // the process may be about to end, as it should
			removeSandbox(c)
		}
		log.L.Warn("containerd has forgotten the container: its shim ends")
		os.Exit(1)
	}
}

// removeSandbox removes a sandbox that containerd has forgotten, or what there is of it yet. A runsc that hangs while
// it creates the sandbox would have the removal wait for it, so it is killed first.
func removeSandbox(c *containers) {
	killChildren(c.bundle.id)
	if err := c.discard(context.Background(), c.bundle.id); err != nil {
		log.L.WithError(err).Warnf("sandbox %s, which containerd has forgotten, is not removed", c.bundle.id)
	}
	killChildren(c.bundle.id)
}

// killChildren kills this process's children whose command lines name the container id. What they leave behind becomes
// a child of this process, and is killed, too. It takes at most about endLimit.
func killChildren(id string) {
	for began, killed := time.Now(), true; killed && time.Since(began) < endLimit; {
		killed = false
		for _, pid := range children() {
			killed = isSandbox(pid, id) && unix.Kill(pid, unix.SIGKILL) == nil || killed
		}
		time.Sleep(haltPause)
	}
}

// children returns the children of this process, see proc_pid_children(5).
func children() (pids []int) {
	all, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is right
	for _, path := range all {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
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
