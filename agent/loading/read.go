package loading

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// ErrEnded says that a sandbox asks for more after its restore has ended.
var ErrEnded = errors.New("the restore has ended")

// Final reports whether a retry of a read that has failed cannot help.
func Final(err error) bool { return errors.Is(err, ErrEnded) || snapshots.Permanent(err) }

// Size returns the size of a file in bytes, or why there is none.
func (i *Image) Size(ctx context.Context, file string) (int64, error) {
	if file == runsc.WorkingSetFile {
		return int64(len(i.expected().Content())), nil
	}
	r, release, err := i.borrow(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	f, ok := r.Manifest.File(file)
	if !ok {
		return 0, fmt.Errorf("snapshot %s has no file %q: %w", i.id.Key, file, storage.ErrNotFound)
	}
	return f.Size, nil
}

// expected returns what the sandbox is expected to wait for, as far as is known by now.
func (i *Image) expected() *snapshots.Expected {
	if s := i.current(); s != nil {
		return s.Expected()
	}
	return nil
}

// ReadWorkingSet is ReadAt for runsc.WorkingSetFile. A sandbox that reads it does not wait for what is expected.
func (i *Image) ReadWorkingSet(off int64, p []byte) error {
	i.guided.Store(true)
	content := i.expected().Content()
	if off < 0 || off > int64(len(content)) || copy(p, content[off:]) < len(p) {
		return fmt.Errorf("%s of %d bytes: %w", runsc.WorkingSetFile, len(content), io.ErrUnexpectedEOF)
	}
	return nil
}

const (
	readRetryFirst = 50 * time.Millisecond
	readRetryMost  = 5 * time.Second
)

// ReadAt retries while the store is unreachable. It gives up on errors that a retry cannot help.
func (i *Image) ReadAt(ctx context.Context, file string, off int64, p []byte) error {
	pauses := backoff.ExponentialBackOff{
		InitialInterval: readRetryFirst, MaxInterval: readRetryMost, Multiplier: 2, RandomizationFactor: 0.25,
	}
	for {
		err := i.readOnce(ctx, file, off, p)
		if err == nil {
			i.Add(int64(len(p)))
			return nil
		}
		if ctx.Err() != nil || Final(err) {
			return err
		}
		i.loader.Logger.Warn("read is retried", "snapshot", i.id.Key.String(), "file", file, "offset", off, "error", err)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (i *Image) readOnce(ctx context.Context, file string, off int64, p []byte) error {
	r, release, err := i.borrow(ctx)
	if err != nil {
		return err
	}
	defer release()
	return r.ReadAt(ctx, file, off, [][]byte{p})
}

// borrow returns the reader of the snapshot until release is called. If the reader was released, borrow opens a new one
// for a restore of root file systems; for a whole pod it fails. If another snapshot has the key by then, the error is
// of kind ErrReplaced.
func (i *Image) borrow(ctx context.Context) (s *snapshots.Reader, release func(), err error) {
	readers := i.loader.Readers
	i.mu.Lock()
	if s = i.reader; s != nil {
		readers.Retain(s)
	}
	i.mu.Unlock()
	if s == nil && !i.reopens {
		return nil, nil, fmt.Errorf("request %s: %w", i.request, ErrEnded)
	}
	if s == nil {
		if s, err = readers.Open(ctx, i.id, i.store); err != nil {
			return nil, nil, err
		}
	}
	return s, func() { readers.Release(s) }, nil
}
