package agent

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/api/snapshot"
)

// Restores of root file systems differ from those of whole pods in how they end. A container that is
// started again in the sandbox reads its files again, so the sidecar stays, and the request with it,
// as long as the sandbox does. That all files have been loaded is the shim's word.

// errEnded says that a sandbox asks for more after it has had everything.
var errEnded = errors.New("the restore has ended")

// loaded takes the shim's word that all containers of a sandbox have all their files. The snapshot
// is let go: it may be removed.
func (rs *restores) loaded(request string) error {
	r, err := rs.find(rs.life.Context(), request)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.Loaded = true
	r.mu.Unlock()
	if err := rs.remember(r); err != nil { // the next agent holds the snapshot as long as the sandbox lives
		rs.log.Warn("restore not noted as loaded", "request", request, "error", err)
	}
	rs.drop(r)
	rs.conclude(r, nil)
	return nil
}

// borrow returns the reader of a restore's snapshot until release is called. One that was let go is
// opened again; if another snapshot has come to have its key, the error is of kind ErrReplaced.
func (rs *restores) borrow(ctx context.Context, r *restore) (s *sharedReader, release func(), err error) {
	rs.mu.Lock()
	if s = r.reader; s != nil {
		s.users++
	}
	rs.mu.Unlock()
	if s == nil && r.Scope != snapshot.RootfsOnly {
		return nil, nil, fmt.Errorf("request %s: %w", r.Request, errEnded)
	}
	if s == nil {
		if s, err = rs.open(ctx, readerID{r.Key, r.UID}, r.Store); err != nil {
			return nil, nil, err
		}
	}
	return s, func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.releaseLocked(s)
	}, nil
}

// spoilt ends a sandbox whose files cannot be had: unlike one without its memory it would live on,
// with files that cannot be read.
func (rs *restores) spoilt(r *restore, cause error) {
	if r.Scope != snapshot.RootfsOnly {
		return
	}
	r.mu.Lock()
	first := !r.spoilt
	r.spoilt = true
	r.mu.Unlock()
	if !first {
		return
	}
	log := rs.log.With("request", r.Request, "pod", r.Pod.String(), "snapshot", r.Key.String())
	log.Error("sandbox is ended: its files cannot be had", "error", cause)
	rs.tell(rs.life.Context(), r.Pod, r.Key, cause)
	rs.life.Go(func() {
		ctx, cancel := context.WithTimeout(rs.life.Context(), resumeTime) // it asks the next agent too
		defer cancel()
		pod, err := rs.cri.Get(ctx, r.SandboxID)
		if err == nil {
			err = rs.cri.Kill(ctx, pod)
		}
		if err != nil { // one that is still being created fails by itself
			log.Warn("sandbox not ended", "error", err)
		}
	})
}
