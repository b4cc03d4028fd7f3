package restore

import (
	"context"
	"log/slog"
	"time"

	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
)

const (
	// killTime bounds how long it may take to end a sandbox whose memory or files cannot be read.
	killTime = time.Minute
	// ownEndTime is how long a sandbox may take to end by itself when its memory cannot be read.
	ownEndTime = 10 * time.Second
)

// ender ends sandboxes that cannot be restored.
type ender struct {
	runtime Runtime
	reports *reports
	life    *lifetime.Life
	log     *slog.Logger
}

// endSandbox ends a sandbox whose memory or files cannot be read, in the background. One without its files would live
// on. One without its memory ends by itself, unless it hangs.
func (e *ender) endSandbox(r *restore, cause error) {
	if !e.lost(r, cause) {
		return
	}
	if r.Scope == snapshot.RootfsOnly {
		e.life.Go(func() { e.kill(r, cause) })
		return
	}
	e.life.Go(func() {
		select {
		case <-r.ended:
		case <-e.life.Context().Done():
		case <-time.After(ownEndTime):
			e.kill(r, cause)
		}
	})
}

// lost notes that a restore has failed for want of memory or files, and tells the cluster unless the shim does. It
// reports whether that was not noted before.
func (e *ender) lost(r *restore, cause error) (first bool) {
	r.mu.Lock()
	first, woken := r.on(filesLost), r.woken
	r.mu.Unlock()
	if first && (r.Scope == snapshot.RootfsOnly || woken) { // the shim has said that all went well
		e.reports.tell(e.life.Context(), r.Pod, r.Key, cause)
	}
	return first
}

// kill ends the sandbox of a restore.
func (e *ender) kill(r *restore, cause error) {
	log := e.log.With("request", r.Request, "pod", r.Pod.String(), "snapshot", r.Key.String())
	log.Error("sandbox is ended: its memory or files cannot be had", "error", cause)
	// The next agent does the same when a sandbox asks for files again. One that hangs for want of memory asks for
	// nothing: it stays until its pod is removed.
	ctx, cancel := context.WithTimeout(e.life.Context(), killTime)
	defer cancel()
	pod, err := e.runtime.Get(ctx, r.SandboxID)
	if err == nil {
		err = e.runtime.Kill(ctx, pod)
	}
	if err != nil { // a sandbox that is still being created fails by itself
		log.Warn("sandbox not ended", "error", err)
	}
}
