package shim

import (
	"context"
	"log/slog"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"

	"diapause.dev/runsc/sidecar"
)

// exitLimit is how long a killed container may take to exit while its sandbox is loading.
//
// GVisor does not interrupt a process that waits for memory to be loaded, not even by SIGKILL. Without an agent, or
// without its store, that wait never ends, and neither would the removal of the pod.
const exitLimit = 5 * time.Second

// watchKilled watches a container that is to be killed. If the container has not exited in time because its sandbox is
// still loading, it ends the sandbox. The removal of the container waits for the goroutine that it starts.
func (p *progress) watchKilled(ctx context.Context, id string) {
	if !p.stillLoading(id) || !p.roster.leave(id) {
		return
	}
	p.pending.of(id).Go(func() {
		exited := make(chan struct{})
		go func() { // ends with the container
			defer close(exited)
			if _, err := p.next.Wait(context.WithoutCancel(ctx), &task.WaitRequest{ID: id}); err != nil {
				slog.Warn("wait for a container that was killed", "container", id, "error", err)
			}
		}()
		select {
		case <-exited:
			return
		case <-time.After(exitLimit):
		}
		if !p.stillLoading(id) {
			return // the container ends by itself
		}
		slog.Warn("the container was killed and does not exit, for its sandbox is still loading: ending the sandbox",
			"sandbox", p.bundle.id, "container", id)
		if err := p.bundle.kill(); err != nil {
			slog.Error("end the sandbox", "sandbox", p.bundle.id, "error", err)
		}
	})
}

// statusKilled is the exit status of a container that SIGKILL has ended.
const statusKilled = 128 + int(unix.SIGKILL)

// stillLoading reports whether a container may be waiting for something that its sandbox has not loaded yet. The
// sidecar of a whole pod ends when everything is loaded. The sidecar for root file systems alone does not.
func (p *progress) stillLoading(id string) bool {
	p.mu.Lock()
	loading := p.loading[id] != nil
	p.mu.Unlock()
	image := p.bundle.image()
	if loading || image == "" {
		return loading
	}
	held, err := sidecar.Held(image)
	if err != nil {
		slog.Warn("not known whether the sandbox is still loading", "sandbox", p.bundle.id, "error", err)
	}
	return held
}
