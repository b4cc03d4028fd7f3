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

// prepareTemp makes .tmp and removes from it what dead writers have left.
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
			continue // gone meanwhile, or its writer is alive
		}
		if err := b.root.RemoveAll(path.Join(tempDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeTemp writes the size bytes of r (-1: all of them) durably to a file in .tmp, and returns the file's name. After
// an error there is no such file.
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
			_ = b.root.Remove(temp) // else a later Open removes it
		}
	}()
	if err := copyExactly(&tempFile{ctx: ctx, file: f, size: size}, r, size); err != nil {
		return "", err
	}
	return temp, f.Sync()
}

// copyBuffer is how much is written between two checks of the context.
const copyBuffer = 1 << 20

// copyExactly copies r to f. It fails if r does not hold exactly size bytes.
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

// tempFile is an object's content while it is written to the disk.
type tempFile struct {
	ctx     context.Context
	file    *os.File
	size    int64 // of the object; -1: not known
	written int64
	flushed int64 // bytes that the kernel was told to write
}

var _ storage.VectorWriter = (*tempFile)(nil)

// flushEvery is after how many bytes the kernel is told to write them. By itself the kernel would write much later, and
// the final Sync would have to wait for all of them.
const flushEvery = 2 << 20

// Write implements io.Writer.
func (f *tempFile) Write(b []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := f.file.Write(b)
	return n, f.wrote(n, err)
}

// mostPieces is how many pieces one system call takes (IOV_MAX).
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
			return total, io.ErrShortWrite // else the loop would never end
		}
		total += int64(n)
		if err := f.wrote(n, nil); err != nil {
			return total, err
		}
		pieces = behind(pieces, n)
	}
	return total, nil
}

// behind returns what is left of pieces after the first n bytes.
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

// wrote counts n more bytes. It returns err, or an error if there are now too many bytes.
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

// attempts bounds the retries of publish. Deletes of other objects may remove the object's directory, and creates of
// other objects may bring it back.
const attempts = 100

// publish gives a temporary file its name by give, and makes the directories above the name. The file may keep its
// temporary name as well.
func (b *Backend) publish(temp, name string, give func(temp, name string) error) error {
	var err error
	for range attempts {
		if err = give(temp, name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		tree := b.publishTree(temp, name)
		if !errors.Is(tree, fs.ErrNotExist) && !errors.Is(tree, fs.ErrExist) {
			return tree
		}
	}
	return err
}

// publishTree gives a temporary file its name, together with the directories above it that are missing or empty. It
// makes them in .tmp with the file in them, and then renames them all at once. So no delete ever sees one of them empty
// and removes it. If the object's directory exists and is not empty, the error is fs.ErrExist. If a directory above it,
// or the file, has gone meanwhile, the error is fs.ErrNotExist.
func (b *Backend) publishTree(temp, name string) error {
	tree := path.Join(tempDir, rand.Text())
	defer func() { _ = b.root.RemoveAll(tree) }() // else a later Open removes it
	if err := b.root.MkdirAll(path.Join(tree, path.Dir(name)), dirMode); err != nil {
		return err
	}
	if err := b.root.Link(temp, path.Join(tree, name)); err != nil {
		return err
	}
	err := fs.ErrNotExist // if name has no directory
	for i, c := range name {
		if c != '/' {
			continue
		}
		if err = b.renameDir(path.Join(tree, name[:i]), name[:i]); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return err
}

// renameDir renames a directory. It replaces an empty directory that has the new name, which os.Root.Rename refuses.
func (b *Backend) renameDir(from, to string) error {
	old, err := b.root.Open(path.Dir(from))
	if err != nil {
		return err
	}
	defer old.Close() // nothing was written
	above, err := b.root.Open(path.Dir(to))
	if err != nil {
		return err
	}
	defer above.Close() // nothing was written
	err = unix.Renameat(int(old.Fd()), path.Base(from), int(above.Fd()), path.Base(to))
	if err != nil {
		return &os.LinkError{Op: "renameat", Old: from, New: to, Err: err}
	}
	return nil
}

// syncAbove makes an object's name durable. It syncs each directory from the object's up to the root. Any of them may
// be new, made by this process or by another one that has not synced it yet.
func (b *Backend) syncAbove(name string) error {
	for d := path.Dir(name); ; d = path.Dir(d) {
		if err := b.syncDir(d); err != nil || d == "." {
			return err
		}
	}
}

// syncDir syncs a directory. If the directory is gone, there is nothing to sync.
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
