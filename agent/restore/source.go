package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/storage"
)

// source is where one sandbox reads its image from. It implements gofer.Source.
type source struct {
	rs      *Restores
	restore *restore
	held    <-chan struct{} // closed when the sandbox may have the memory, see beforehand.go; nil: it may
	fed     atomic.Bool     // the sandbox may have got a byte of its memory
}

// Size implements gofer.Source.
func (s *source) Size(file string) (int64, error) {
	if file == runsc.WorkingSetFile {
		return int64(len(s.expected().Content())), nil
	}
	ctx, cancel := context.WithTimeout(s.rs.Life.Context(), reviveTime)
	defer cancel()
	r, release, err := s.rs.borrow(ctx, s.restore)
	if err != nil {
		return 0, err
	}
	defer release()
	f, ok := r.Manifest.File(file)
	if !ok {
		return 0, fmt.Errorf("snapshot %s has no file %q: %w", s.restore.Key, file, storage.ErrNotFound)
	}
	return f.Size, nil
}

// expected returns what the sandbox is expected to wait for, as far as is known by now.
func (s *source) expected() *snapshots.Expected {
	s.rs.mu.Lock()
	defer s.rs.mu.Unlock()
	if s.restore.reader == nil {
		return nil
	}
	return s.restore.reader.Expected()
}

// readWorkingSet is ReadAt for runsc.WorkingSetFile. A sandbox that reads it does not wait for what is expected.
func (s *source) readWorkingSet(off int64, p []byte) error {
	s.restore.guided.Store(true)
	content := s.expected().Content()
	if off < 0 || off > int64(len(content)) || copy(p, content[off:]) < len(p) {
		return fmt.Errorf("%s of %d bytes: %w", runsc.WorkingSetFile, len(content), io.ErrUnexpectedEOF)
	}
	return nil
}

const (
	readRetryFirst = 50 * time.Millisecond
	readRetryMost  = 5 * time.Second
)

// ReadAt implements gofer.Source.
func (s *source) ReadAt(ctx context.Context, file string, off int64, p []byte) error {
	if file == runsc.WorkingSetFile {
		return s.readWorkingSet(off, p)
	}
	if s.holds() {
		if isKernel(file) {
			return s.readPatiently(ctx, file, off, p)
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
	if err := s.rs.feed(s.restore); err != nil {
		return err
	}
	return s.readPatiently(ctx, file, off, p)
}

// Failed implements gofer.Source. The sandbox cannot live without its memory.
func (s *source) Failed(file string, err error) {
	if file != runsc.WorkingSetFile && !s.holds() { // it can live without that; and a pod sleeps on without it
		s.restore.note(err)
		s.rs.endSandbox(s.restore, err)
	}
}

// readPatiently retries while the store is unreachable. It gives up on errors that a retry cannot help.
func (s *source) readPatiently(ctx context.Context, file string, off int64, p []byte) error {
	pauses := backoff.ExponentialBackOff{
		InitialInterval: readRetryFirst, MaxInterval: readRetryMost, Multiplier: 2, RandomizationFactor: 0.25,
	}
	for {
		err := s.read(ctx, file, off, p)
		if err == nil {
			s.restore.add(int64(len(p)))
			return nil
		}
		if ctx.Err() != nil || final(err) {
			return err
		}
		s.rs.log.Warn("read is retried", "snapshot", s.restore.Key.String(), "file", file, "offset", off, "error", err)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *source) read(ctx context.Context, file string, off int64, p []byte) error {
	r, release, err := s.rs.borrow(ctx, s.restore)
	if err != nil {
		return err
	}
	defer release()
	return r.ReadAt(ctx, file, off, [][]byte{p})
}

// final reports whether a retry cannot help.
func final(err error) bool { return errors.Is(err, errEnded) || snapshots.Permanent(err) }

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
	s.rs.lost(s.restore, err)
	s.rs.Life.Go(func() { s.rs.kill(s.restore, err) }) // it would not end by itself
}

// gone returns the error of a restore whose sandbox has ended. The agent cannot tell for sure whether the kernel killed
// the sandbox because of its memory limit: the sandbox's cgroup may be gone, too.
func (r *restore) gone() error {
	var limit string
	if r.Limit > 0 {
		limit = fmt.Sprintf(", under a memory limit of %d MiB: if it was killed for that, raise the limit", r.Limit>>20)
	}
	return fmt.Errorf("restore of %s: %w before it had all its memory%s", r.Key, errkind.ErrSandboxExited, limit)
}

// add counts bytes handed to the sandbox.
func (r *restore) add(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read += n
}

// progress returns how many bytes the sandbox has been handed, and how many the image has.
func (r *restore) progress() (done, total int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.read, r.total), r.total
}

// hasAll reports whether the sandbox has had everything, though it may ask again.
func (r *restore) hasAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Loaded
}

// note keeps the first reason why the restore must fail.
func (r *restore) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// failure returns the reason noted, or nil.
func (r *restore) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Loading returns how far a sandbox has loaded its memory, and whether it is still loading.
func (rs *Restores) Loading(sandbox string) (done, total int64, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		if r.SandboxID == sandbox && !rs.asleep(r.Request) {
			done, total = r.progress()
			return done, total, !r.hasAll()
		}
	}
	return 0, 0, false
}

// borrow returns the reader of a restore's snapshot until release is called. If the reader was released, borrow opens a
// new one for a restore of root file systems; for a whole pod it fails. If another snapshot has the key by then, the
// error is of kind ErrReplaced.
func (rs *Restores) borrow(ctx context.Context, r *restore) (s *snapshots.Reader, release func(), err error) {
	rs.mu.Lock()
	if s = r.reader; s != nil {
		rs.Readers.Retain(s)
	}
	rs.mu.Unlock()
	if s == nil && r.Scope != snapshot.RootfsOnly {
		return nil, nil, fmt.Errorf("request %s: %w", r.Request, errEnded)
	}
	if s == nil {
		if s, err = rs.Readers.Open(ctx, snapshots.ID{Key: r.Key, UID: r.UID}, r.Store); err != nil {
			return nil, nil, err
		}
	}
	return s, func() { rs.Readers.Release(s) }, nil
}
