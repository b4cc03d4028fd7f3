package restore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"diapause.dev/agent/loading"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
)

// source is where one sandbox reads its image from. It implements gofer.Source.
type source struct {
	rs      *Restores
	restore *restore
	held    <-chan struct{} // closed when the sandbox may have the memory, see beforehand.go; nil: it may
	fed     atomic.Bool     // the sandbox may have got a byte of its memory
}

// holds reports whether a source gives nothing of the memory yet.
func (s *source) holds() bool {
	if s.held == nil {
		return false
	}
	select {
	case <-s.held:
		return false
	default:
		return true
	}
}

// endedAhead notes that a sandbox has gone without which its pod sleeps on, or wakes by another one. It reports whether
// it was one: it has had nothing of the memory.
func (s *source) endedAhead(gone bool) bool {
	if s.held == nil || s.fed.Load() {
		return false
	}
	r := s.restore
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != reading || r.err != nil || r.woken {
		return false
	}
	r.image.Restart()
	r.serving, r.died = r.serving-1, gone
	return true
}

// Size implements gofer.Source.
func (s *source) Size(file string) (int64, error) {
	ctx, cancel := context.WithTimeout(s.rs.Life.Context(), reviveTime)
	defer cancel()
	return s.restore.image.Size(ctx, file)
}

// ReadAt implements gofer.Source.
func (s *source) ReadAt(ctx context.Context, file string, off int64, p []byte) error {
	if file == runsc.WorkingSetFile {
		return s.restore.image.ReadWorkingSet(off, p)
	}
	if s.holds() {
		if loading.IsKernel(file) {
			return s.restore.image.ReadAt(ctx, file, off, p)
		}
		select {
		case <-s.held:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	s.fed.Store(true)
	if err := s.restore.feed(s.rs.Reminders); err != nil {
		return err
	}
	return s.restore.image.ReadAt(ctx, file, off, p)
}

// Failed implements gofer.Source. The sandbox cannot live without its memory.
func (s *source) Failed(file string, err error) {
	if file != runsc.WorkingSetFile && !s.holds() { // it can live without that; and a pod sleeps on without it
		s.restore.note(err)
		s.rs.ender.endSandbox(s.restore, err)
	}
}

// Asked implements gofer.Source.
func (s *source) Asked(file string, off, n int64, why gofer.Need) {
	if !s.holds() {
		s.restore.image.Asked(file, off, n, why)
	}
}

// Rest implements gofer.Source.
func (s *source) Rest(took time.Duration) time.Duration { return s.restore.image.Rest(took) }

// Pace implements gofer.Source.
func (s *source) Pace(file string, off, n int64, prompt bool) gofer.Pace {
	if s.holds() {
		return gofer.Pace{Held: s.held}
	}
	return s.restore.image.Pace(file, off, n, prompt)
}

// Ended implements gofer.Source.
func (s *source) Ended(end gofer.End, reason error) {
	r := s.restore
	if !errors.Is(reason, gofer.ErrBreach) && s.endedAhead(end == gofer.Gone) {
		return
	}
	if reason != nil {
		r.note(reason)
	}
	if end == gofer.Loaded && r.Scope == snapshot.RootfsOnly {
		end = gofer.Gone // its sidecar stays until the sandbox ends: see rootfs.go
	}
	r.mu.Lock()
	r.serving--
	failed := r.state == failing && r.serving == 0
	r.mu.Unlock()
	switch {
	case errors.Is(r.failure(), gofer.ErrBreach):
		s.rs.finish(r, r.failure())
	case end == gofer.Loaded:
		s.rs.finish(r, nil)
	case end == gofer.Gone:
		s.rs.finish(r, r.gone())
	case failed:
		s.rs.finish(r, r.failure())
	}
}

// Account implements gofer.Source. Restores of the next agent begin with another one.
func (s *source) Account() *gofer.Account { return &s.restore.account }

// Breach implements gofer.Source.
func (s *source) Breach(err error) {
	err = fmt.Errorf("restore of %s: pod %s is ended: %w", s.restore.Key, s.restore.Pod, err)
	s.restore.note(err)
	s.rs.ender.lost(s.restore, err)
	s.rs.Life.Go(func() { s.rs.ender.kill(s.restore, err) }) // it would not end by itself
}

// Loading returns how far a sandbox has loaded its memory, and whether it is still loading.
func (rs *Restores) Loading(sandbox string) (done, total int64, ok bool) {
	for _, r := range rs.registry.ofSandbox(sandbox) {
		if !rs.Marks.Asleep(r.Request) {
			done, total = r.image.Progress()
			return done, total, !r.hasAll()
		}
	}
	return 0, 0, false
}
