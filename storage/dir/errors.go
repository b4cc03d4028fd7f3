package dir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"diapause.dev/storage"
)

// kinds maps errors of the operating system to those of a Backend.
var kinds = []struct{ is, kind error }{
	{fs.ErrNotExist, storage.ErrNotFound},
	{syscall.ENOTDIR, storage.ErrNotFound},
	{syscall.EISDIR, storage.ErrNotFound},
	{fs.ErrExist, storage.ErrExists},
	{io.EOF, storage.ErrTruncated},
	{io.ErrUnexpectedEOF, storage.ErrTruncated},
	{syscall.ENOSPC, storage.ErrNoSpace},
	{syscall.EDQUOT, storage.ErrNoSpace},
	{syscall.EFBIG, storage.ErrNoSpace},
	{syscall.EIO, storage.ErrUnavailable},
	{syscall.ESTALE, storage.ErrUnavailable},
	{syscall.ENOTCONN, storage.ErrUnavailable},
	{syscall.ETIMEDOUT, storage.ErrUnavailable},
	{syscall.EROFS, storage.ErrUnavailable},
	{syscall.EMFILE, storage.ErrUnavailable},
	{syscall.ENFILE, storage.ErrUnavailable},
}

// classify adds the kind to an error that has none.
func classify(err error) error {
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return err
		}
		if errors.Is(err, k.is) {
			return fmt.Errorf("%w: %w", k.kind, err)
		}
	}
	return err
}
