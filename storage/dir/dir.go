package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/failpoint"
)

const (
	tempDir  = ".tmp"
	tempLife = time.Hour // since the last write; after that its writer is taken for dead
	dirMode  = 0o700
	fileMode = 0o600
)

// Backend is a storage.Backend over a directory.
type Backend struct {
	root *os.Root
	path string // absolute
}

var _ storage.Backend = (*Backend)(nil)

// Open opens the directory at path. If it does not exist, Open creates it with mode 0700.
func Open(path string) (*Backend, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", path, classify(err))
	}
	if err := os.MkdirAll(path, dirMode); err != nil {
		return nil, fmt.Errorf("make directory %s: %w", path, classify(err))
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", path, classify(err))
	}
	b := &Backend{root: root, path: path}
	if err := b.prepareTemp(); err != nil {
		return nil, errors.Join(fmt.Errorf("open directory %s: %w", path, classify(err)), root.Close())
	}
	return b, nil
}

// OpenExisting is Open for a directory that must already hold the given object. Otherwise it makes nothing, and the
// error is storage.ErrNotFound. This recognises a mount point where nothing is mounted: it looks like an empty
// directory.
func OpenExisting(path, object string) (*Backend, error) {
	if _, err := os.Stat(filepath.Join(path, filepath.FromSlash(object))); err != nil {
		return nil, fmt.Errorf("open directory %s: %w", path, classify(err))
	}
	return Open(path)
}

// Location returns "dir:" and the absolute path.
func (b *Backend) Location() string { return "dir:" + b.path }

// Close closes the directory.
func (b *Backend) Close() error { return b.root.Close() }

// Create implements storage.Backend.
func (b *Backend) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	temp, err := b.writeTemp(ctx, r, size)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, classify(err))
	}
	failpoint.ObjectWritten.Hit()
	err = b.publish(temp, name, b.root.Link)
	_ = b.root.Remove(temp) // else a later Open removes it
	if err != nil {
		return fmt.Errorf("create %s: %w", name, classify(err))
	}
	failpoint.ObjectLinked.Hit()
	if err := b.syncAbove(name); err != nil {
		_ = b.root.Remove(name) // a power failure may undo the name, so nobody must rely on it
		return fmt.Errorf("create %s: %w", name, classify(err))
	}
	return nil
}

// Replace implements storage.Backend.
func (b *Backend) Replace(ctx context.Context, name string, data []byte) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	temp, err := b.writeTemp(ctx, strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, classify(err))
	}
	err = b.publish(temp, name, b.root.Rename)
	_ = b.root.Remove(temp) // if it still exists; else a later Open removes it
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, classify(err))
	}
	if err := b.syncAbove(name); err != nil {
		return fmt.Errorf("replace %s: %w", name, classify(err))
	}
	return nil
}

// ReadAt implements storage.Backend.
func (b *Backend) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	f, err := b.root.Open(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, classify(err))
	}
	defer f.Close() // nothing was written
	n, err := f.ReadAt(p, off)
	if n == len(p) && err == io.EOF {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("read %s: bytes %d+%d, got %d: %w", name, off, len(p), n, classify(err))
	}
	return nil
}

// ReadAll implements storage.Backend.
func (b *Backend) ReadAll(ctx context.Context, name string, max int64) ([]byte, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	f, err := b.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, classify(err))
	}
	defer f.Close() // nothing was written
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = storage.ErrNotFound
	case err == nil && info.Size() > max:
		err = fmt.Errorf("%w: %d bytes, at most %d expected", storage.ErrTooLarge, info.Size(), max)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, classify(err))
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, classify(err))
	}
	return data, nil
}

// Stat implements storage.Backend.
func (b *Backend) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	if err := check(ctx, name); err != nil {
		return storage.ObjectInfo{}, err
	}
	info, err := b.root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.ObjectInfo{}, fmt.Errorf("stat %s: %w", name, classify(err))
	}
	return storage.ObjectInfo{Name: name, Size: info.Size(), Modified: info.ModTime()}, nil
}

// Delete implements storage.Backend. Directories that it leaves empty are removed.
func (b *Backend) Delete(ctx context.Context, name string) error {
	if _, err := b.Stat(ctx, name); err != nil { // Remove would also remove an empty directory
		return fmt.Errorf("delete: %w", err)
	}
	if err := b.root.Remove(name); err != nil {
		return fmt.Errorf("delete %s: %w", name, classify(err))
	}
	if err := b.syncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("delete %s: %w", name, classify(err))
	}
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if b.root.Remove(d) != nil {
			break // not empty
		}
	}
	return nil
}

// check does the checks with which the reading methods begin.
func check(ctx context.Context, name string) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	return ctx.Err()
}
