package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"diapause.dev/storage"
)

// reads is how often a read is begun whose bytes end too early.
const reads = 3

// errCut says that an answer has ended before all its bytes came.
var errCut = fmt.Errorf("%w: the connection was cut", storage.ErrUnavailable)

// Reader implements the methods of storage.Backend that read objects.
type Reader struct {
	stat     func(ctx context.Context, name string) (storage.ObjectInfo, error)
	ask      func(ctx context.Context, name string, off, n int64, use func(*Content) error) error
	classify func(ctx context.Context, err error) error
}

// NewReader returns a Reader. stat implements storage.Backend. get asks for n bytes of an object from off on, or for
// the whole object if off is negative, and calls use with the answer, of which use reads at most n bytes. classify adds
// to an error its kind.
func NewReader(
	stat func(ctx context.Context, name string) (storage.ObjectInfo, error),
	get func(ctx context.Context, name string, off, n int64, use func(*Content) error) error,
	classify func(ctx context.Context, err error) error,
) Reader {
	return Reader{stat, get, classify}
}

// ReadAt implements storage.Backend.
func (r Reader) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("read %s: negative offset %d", name, off)
	}
	if len(p) == 0 {
		_, err := r.stat(ctx, name)
		return err
	}
	err := r.get(ctx, name, off, int64(len(p)), func(c *Content) error { return c.fill(p, off) })
	if err != nil {
		return fmt.Errorf("read %s: bytes %d+%d: %w", name, off, len(p), err)
	}
	return nil
}

// ReadAll implements storage.Backend.
func (r Reader) ReadAll(ctx context.Context, name string, max int64) (data []byte, err error) {
	if err := storage.ValidateObject(name); err != nil {
		return nil, err
	}
	err = r.get(ctx, name, -1, max, func(c *Content) error {
		if c.Size > max {
			return fmt.Errorf("%w: %d bytes, at most %d expected", storage.ErrTooLarge, c.Size, max)
		}
		data = make([]byte, c.Size)
		return c.fill(data, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// get asks again if the content was cut.
func (r Reader) get(ctx context.Context, name string, off, n int64, use func(*Content) error) (err error) {
	for range reads {
		if err = r.getOnce(ctx, name, off, n, use); !errors.Is(err, errCut) || ctx.Err() != nil {
			break
		}
	}
	return r.classify(ctx, err)
}

func (r Reader) getOnce(ctx context.Context, name string, off, n int64, use func(*Content) error) error {
	ctx, cancel := Bounded(ForContent(ctx), n)
	defer cancel()
	return r.ask(ctx, name, off, n, func(c *Content) error {
		if c.Size < 0 {
			return fmt.Errorf("%w: the store does not say how many bytes it sends", storage.ErrUnavailable)
		}
		return use(c)
	})
}

// Content is the answer to a request for an object's content.
type Content struct {
	Body  io.Reader
	Size  int64  // of the body
	Range string // which bytes these are: the header Content-Range, or empty if all
}

// fill fills p with the object's bytes from off on.
func (c *Content) fill(p []byte, off int64) error {
	from := "bytes 0-"
	if c.Range != "" {
		from = c.Range
	}
	if !strings.HasPrefix(from, fmt.Sprintf("bytes %d-", off)) {
		return fmt.Errorf("%w: the store sent other bytes, %.80q", storage.ErrUnavailable, from)
	}
	if c.Size < int64(len(p)) {
		return fmt.Errorf("%w: %d bytes are there", storage.ErrTruncated, c.Size)
	}
	if _, err := io.ReadFull(c.Body, p); err != nil {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return nil
}
