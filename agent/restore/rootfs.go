package restore

import (
	"context"
	"errors"
	"time"

	"diapause.dev/api/snapshot"
)

// Restores of root file systems end differently from those of whole pods. A container that is started again in the
// sandbox reads its files again. So the sidecar and the request stay as long as the sandbox does. The shim reports when
// all files have been loaded.

// killTime bounds how long it may take to end a sandbox whose files cannot be read.
const killTime = time.Minute

// errEnded says that a sandbox asks for more after its restore has ended.
var errEnded = errors.New("the restore has ended")

// Loaded notes that the shim has reported that all containers of a sandbox have all their files. It releases the
// snapshot, which may then be removed.
func (rs *Restores) Loaded(request string) error {
	r, err := rs.find(rs.Life.Context(), request)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.Loaded = true
	r.on(allLoaded)
	r.mu.Unlock()
	if err := rs.remember(r); err != nil { // then the next agent holds the snapshot as long as the sandbox lives
		rs.log.Warn("restore not noted as loaded", "request", request, "error", err)
	}
	rs.drop(r)
	rs.conclude(r, nil)
	return nil
}

// endSandbox ends a sandbox whose files cannot be read. A sandbox without its memory ends by itself; one without its
// files would live on.
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
		ctx, cancel := context.WithTimeout(rs.Life.Context(), killTime) // else the next agent ends it when the sandbox asks
		defer cancel()
		pod, err := rs.Runtime.Get(ctx, r.SandboxID)
		if err == nil {
			err = rs.Runtime.Kill(ctx, pod)
		}
		if err != nil { // a sandbox that is still being created fails by itself
			log.Warn("sandbox not ended", "error", err)
		}
	})
}
