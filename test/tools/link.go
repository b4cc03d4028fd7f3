package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// linkAll makes every file below from appear below to.
func linkAll(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("tools: %w", err)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return relink(path, filepath.Join(to, rel))
	})
}

// relink makes to a name of the file from, or a copy of it where the two cannot
// share one. What was called to before is replaced, never written to: a program
// may be running from it.
func relink(from, to string) error {
	if sameFile(from, to) || sameCopy(from, to) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	part := to + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("tools: %w", err)
	}
	if err := os.Link(from, part); err != nil {
		if err := copyFile(from, part); err != nil {
			return err
		}
	}
	if err := os.Rename(part, to); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	return nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// sameCopy reports whether b is the copy of a that copyFile made.
func sameCopy(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
}

// copyFile copies a program and the time at which it was made.
func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if _, err := io.Copy(dst, src); err != nil {
		return fmt.Errorf("tools: copy %s: %w", from, err)
	}
	info, err := src.Stat()
	if err == nil {
		err = os.Chtimes(to, time.Time{}, info.ModTime())
	}
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	return nil
}

// locked calls f while this process alone holds the lock on the programs of this checkout. It
// returns ctx's error if ctx ends while another process holds it.
func (b Bin) locked(ctx context.Context, f func() error) error {
	cache := filepath.Join(b.Root, ".cache", "bin")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	lock := flock.New(filepath.Join(cache, "lock"), flock.SetPermissions(0o644))
	if _, err := lock.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return fmt.Errorf("tools: wait for another build to release %s: %w", lock, err)
	}
	defer lock.Close()
	return f()
}
