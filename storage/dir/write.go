package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/storage"
)

// prepareTemp makes .tmp and removes from it what dead writers left.
func (b *Backend) prepareTemp() error {
	if err := b.root.Mkdir(tempDir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	left, err := fs.ReadDir(b.root.FS(), tempDir)
	if err != nil {
		return err
	}
	for _, e := range left {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < tempLife {
			continue // gone meanwhile, or alive
		}
		if err := b.root.Remove(path.Join(tempDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeTemp writes the size bytes of r (-1: all of them) to a file in .tmp, durably, and returns the
// file's name. On an error there is no such file.
func (b *Backend) writeTemp(ctx context.Context, r io.Reader, size int64) (_ string, err error) {
	temp := path.Join(tempDir, rand.Text())
	f, err := b.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return "", err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			_ = b.root.Remove(temp) // a later Open does it
		}
	}()
	if err := copyExactly(&tempFile{ctx: ctx, file: f, size: size}, r, size); err != nil {
		return "", err
	}
	return temp, f.Sync()
}

// copyBuffer is how much is written between two looks at the context.
const copyBuffer = 1 << 20

// copyExactly copies r to f and fails if r does not hold size bytes.
func copyExactly(f *tempFile, r io.Reader, size int64) error {
	var err error
	if from, ok := r.(io.WriterTo); ok {
		_, err = from.WriteTo(f)
	} else {
		buffer := make([]byte, copyBuffer)
		if size >= 0 && size < copyBuffer {
			buffer = buffer[:size+1]
		}
		_, err = io.CopyBuffer(f, r, buffer)
	}
	if err == nil && size >= 0 && f.written != size {
		err = f.wrong()
	}
	return err
}

// tempFile is an object's content on its way to the disk.
type tempFile struct {
	ctx     context.Context
	file    *os.File
	size    int64 // of the object; -1: not known
	written int64
	flushed int64 // bytes that the kernel was told to write
}

var _ storage.VectorWriter = (*tempFile)(nil)

// flushEvery is how many bytes there are before the kernel is told to write them. It would do so by
// itself much later, so that the last Sync would have to wait for all of them.
const flushEvery = 2 << 20

// Write implements io.Writer.
func (f *tempFile) Write(b []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := f.file.Write(b)
	return n, f.wrote(n, err)
}

// mostPieces is how many pieces one call of the kernel takes (IOV_MAX).
const mostPieces = 1024

// WriteVector implements storage.VectorWriter. It changes pieces.
func (f *tempFile) WriteVector(pieces [][]byte) (total int64, err error) {
	for len(pieces) > 0 {
		if err := f.ctx.Err(); err != nil {
			return total, err
		}
		n, err := unix.Writev(int(f.file.Fd()), pieces[:min(len(pieces), mostPieces)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return total, &fs.PathError{Op: "writev", Path: f.file.Name(), Err: err}
		case n == 0:
			return total, io.ErrShortWrite // or it would never end
		}
		total += int64(n)
		if err := f.wrote(n, nil); err != nil {
			return total, err
		}
		pieces = behind(pieces, n)
	}
	return total, nil
}

// behind returns what is left of pieces behind the first n bytes.
func behind(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	if n > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}

// wrote takes note of n more bytes, written with this outcome, and returns an error if that or their
// number is wrong.
func (f *tempFile) wrote(n int, err error) error {
	f.written += int64(n)
	if err == nil && f.size >= 0 && f.written > f.size {
		err = f.wrong()
	}
	if f.written-f.flushed >= flushEvery {
		_ = unix.SyncFileRange(int(f.file.Fd()), f.flushed, f.written-f.flushed, unix.SYNC_FILE_RANGE_WRITE) // only a hint
		f.flushed = f.written
	}
	return err
}

func (f *tempFile) wrong() error {
	return fmt.Errorf("the reader holds %s bytes than the %d announced", moreOrLess(f.written, f.size), f.size)
}

func moreOrLess(n, size int64) string {
	if n > size {
		return "more"
	}
	return "less"
}

// attempts bounds how often a directory may vanish, by deletes of what else was in it, between its
// making and its use.
const attempts = 100

// publish gives a temporary file its name by link, making the directories above it.
func (b *Backend) publish(name string, link func() error) error {
	var err error
	for range attempts {
		if err = link(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		made := b.root.MkdirAll(path.Dir(name), dirMode)
		// One that was there, and then was not, is said to exist.
		if made != nil && !errors.Is(made, fs.ErrNotExist) && !errors.Is(made, fs.ErrExist) {
			return made
		}
	}
	return err
}

// syncAbove makes an object's name durable: each directory from the object's up to the root, since
// any of them may be new, made by this process or by another that has not synced it yet.
func (b *Backend) syncAbove(name string) error {
	for d := path.Dir(name); ; d = path.Dir(d) {
		if err := b.syncDir(d); err != nil || d == "." {
			return err
		}
	}
}

// syncDir syncs a directory. One that is gone needs no syncing.
func (b *Backend) syncDir(name string) error {
	d, err := b.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
