package shim

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"diapause.dev/runsc"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"
)

// A shim that is young checks every watchTime whether containerd still knows its containers, later every watchRarely,
// and every watchAsleep while it saves power: what is given up is mostly given up at the beginning, and a node has
// hundreds of shims, each of which costs processor time when it wakes up.
const (
	watchTime   = 2 * time.Second
	young       = 2 * time.Minute
	watchRarely = 30 * time.Second
	watchAsleep = 10 * time.Minute
)

// watchForgotten removes containers whose bundle is gone, and calls end once there is none left and the bundle for
// which the process was started is gone, too. Containerd removes the bundle last. If a request to start a shim or to
// create a container is given up, containerd forgets the container. It does so even if the shim does not know that, or
// cannot end yet.
func (p *process) watchForgotten(bundle string, end func()) {
	for began := time.Now(); ; {
		pause := watchTime
		switch {
		case p.connected.Repeats():
			pause = watchAsleep
		case time.Since(began) > young:
			pause = watchRarely
		}
		time.Sleep(pause)
		t := p.serving.Load()
		if t != nil {
			t.removeForgotten()
		}
		if forgotten(bundle) && (t == nil || t.size() == 0) && t == p.serving.Load() {
			slog.Warn("containerd has forgotten all that the shim serves: it ends")
			end()
			return
		}
	}
}

// forgotten reports whether containerd has removed a container's bundle.
func forgotten(bundle string) bool {
	_, err := os.Lstat(specPath(bundle))
	return errors.Is(err, os.ErrNotExist)
}

// removeForgotten removes the containers that containerd has forgotten.
func (t *router) removeForgotten() {
	for id, bundle := range t.bundles() {
		if !forgotten(bundle) {
			continue
		}
		slog.Warn("containerd has forgotten a container: it is removed", "container", id)
		if err := t.removeServed(id); err != nil {
			slog.Warn("remove a container that containerd has forgotten", "container", id, "error", err)
		}
		t.forget(id)
	}
}

// removeServed removes a container or, for the sandbox container, what there is of the sandbox yet. A runsc that hangs
// while it creates the container would have the removal wait for it, so it is killed first.
func (t *router) removeServed(id string) error {
	killChildren(id)
	defer killChildren(id)
	ctx := context.Background() // nobody asks for it
	if t.pod != nil && id == t.pod.c.bundle.id {
		return t.pod.c.discard(ctx, id)
	}
	ctx, cancel := context.WithTimeout(ctx, discardLimit)
	defer cancel()
	_, err := t.of(id).Delete(ctx, &task.DeleteRequest{ID: id})
	return err
}

// killChildren kills this process's children whose command lines name the container id. What they leave behind becomes
// a child of this process, and is killed, too. It takes at most about endLimit.
func killChildren(id string) {
	for began, killed := time.Now(), true; killed && time.Since(began) < endLimit; {
		killed = false
		for _, pid := range children() {
			killed = runsc.IsSandbox(pid, id) && unix.Kill(pid, unix.SIGKILL) == nil || killed
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
