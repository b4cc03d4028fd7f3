package shim

import (
	"context"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/log"

	"diapause.dev/runsc/sidecar"
)

// exitLimit is how long a container that was killed may take to exit while its sandbox is loading.
//
// GVisor does not interrupt a process that waits for memory which has not been loaded, whoever kills it;
// without an agent, or without its store, that wait has no end. Whoever removes the pod waits as long.
const exitLimit = 5 * time.Second

// seeOut ends the sandbox if a container that is to be killed has not exited in time, for its sandbox is
// still loading. Delete waits for what it starts.
func (c *containers) seeOut(ctx context.Context, id string) {
	o, ok := c.bundle.ordered()
	if !ok || !c.lacking(o, id) || !c.watchOut(id) {
		return
	}
	c.reports.Add(1)
	go func() {
		defer c.reports.Done()
		exited := make(chan struct{})
		go func() { // ends with the container
			defer close(exited)
			if _, err := c.TaskServiceExt.Wait(context.WithoutCancel(ctx), &task.WaitRequest{ID: id}); err != nil {
				log.L.WithError(err).Warnf("wait for container %s, which was killed", id)
			}
		}()
		select {
		case <-exited:
			return
		case <-time.After(exitLimit):
		}
		if !c.lacking(o, id) {
			return // it ends by itself
		}
		log.L.Warnf("container %s was killed and does not exit, for its sandbox is still loading: ending sandbox %s", id,
			c.bundle.id)
		if err := c.bundle.kill(); err != nil {
			log.L.WithError(err).Errorf("end sandbox %s", c.bundle.id)
		}
	}()
}

// lacking reports whether a container may wait for what its sandbox has not loaded yet. The sidecar of a
// whole pod ends when all is loaded; that of root file systems never does.
func (c *containers) lacking(o order, id string) bool {
	if o.Rootfs {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.loading[id] != nil
	}
	held, err := sidecar.Held(o.ImagePath)
	if err != nil {
		log.L.WithError(err).Warnf("not known whether sandbox %s is still loading", c.bundle.id)
	}
	return held
}

// watchOut reports whether a container is not seen out yet.
func (c *containers) watchOut(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.leaving[id]
	c.leaving[id] = true
	return first
}
