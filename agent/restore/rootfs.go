package restore

import (
	"context"
	"errors"
	"time"

	"diapause.dev/api/snapshot"
)

// Restores of root file systems differ from those of whole pods in how they end. A container that is
// started again in the sandbox reads its files again, so the sidecar stays, and the request with it,
// as long as the sandbox does. That all files have been loaded is the shim's word.

// killTime bounds the end of a sandbox whose files cannot be had.
const killTime = time.Minute

// errEnded says that a sandbox asks for more after it has had everything.
var errEnded = errors.New("the restore has ended")

// Loaded takes the shim's word that all containers of a sandbox have all their files. The snapshot
// is let go: it may be removed.
func (rs *Restores) Loaded(request string) error {
	r, err := rs.find(rs.Life.Context(), request)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.Loaded = true
	r.on(allLoaded)
	r.mu.Unlock()
	if err := rs.remember(r); err != nil { // the next agent holds the snapshot as long as the sandbox lives
		rs.log.Warn("restore not noted as loaded", "request", request, "error", err)
	}
	rs.drop(r)
	rs.conclude(r, nil)
	return nil
}

// endSandbox ends a sandbox whose files cannot be had: unlike one without its memory it would live on,
// with files that cannot be read.
func (rs *Restores) endSandbox(r *restore, cause error) {
	if r.Scope != snapshot.RootfsOnly {
		return
	}
	r.mu.Lock()
	first := r.on(filesLost)
	r.mu.Unlock()
	if !first {
		return
	}
	log := rs.log.With("request", r.Request, "pod", r.Pod.String(), "snapshot", r.Key.String())
	log.Error("sandbox is ended: its files cannot be had", "error", cause)
	rs.Tell(rs.Life.Context(), r.Pod, r.Key, cause)
	rs.Life.Go(func() {
		ctx, cancel := context.WithTimeout(rs.Life.Context(), killTime) // it asks the next agent too
		defer cancel()
		pod, err := rs.Runtime.Get(ctx, r.SandboxID)
		if err == nil {
			err = rs.Runtime.Kill(ctx, pod)
		}
		if err != nil { // one that is still being created fails by itself
			log.Warn("sandbox not ended", "error", err)
		}
	})
}
