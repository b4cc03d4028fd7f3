package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"

	"diapause.dev/storage"
)

const (
	// oneRequest is the size up to which an object is sent in one request, from one buffer, if its size is known.
	oneRequest = 64 << 20
	// partSize is the size of the parts of other objects. Services allow maxParts of them.
	partSize = 16 << 20
	maxParts = 10_000
)

// Upload makes an object. Only Finish makes it.
type Upload interface {
	// Send sends the next part. Others follow.
	Send(part []byte) error
	// Finish sends the last part, and makes the object of all.
	Finish(part []byte) error
	// Abort removes what Send has sent. It follows an error, even if the context has ended.
	Abort()
}

// Create implements storage.Backend by an upload.
func Create(ctx context.Context, u Upload, name string, r io.Reader, size int64) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	if err := create(ctx, u, r, size); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}

func create(ctx context.Context, u Upload, r io.Reader, size int64) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p := newParts(u, size)
	if size >= 0 {
		r = io.LimitReader(r, size+1)
	}
	n, err := io.Copy(p, r)
	if err == nil && size >= 0 && n != size {
		err = fmt.Errorf("the reader does not hold the %d bytes announced", size)
	}
	if err == nil {
		err = u.Finish(p.buf)
	}
	if err != nil {
		u.Abort()
	}
	return err
}

// parts cuts an object into parts.
type parts struct {
	u    Upload
	size int    // of all parts but the last
	buf  []byte // what was not sent yet, at most a part
	sent int    // parts
}

// newParts returns parts of an object of that size, or of any if it is -1.
func newParts(u Upload, size int64) *parts {
	p := &parts{u: u, size: partSize}
	if size >= 0 && size <= oneRequest {
		p.size = int(size) + 1 // a reader may hold one byte too many
	}
	p.buf = make([]byte, 0, p.size)
	return p
}

// Write implements io.Writer. It sends a part once it is full and more follows.
func (p *parts) Write(data []byte) (n int, err error) {
	for len(data) > 0 {
		if len(p.buf) == p.size {
			if err := p.send(); err != nil {
				return n, err
			}
		}
		k := min(len(data), p.size-len(p.buf))
		p.buf = append(p.buf, data[:k]...)
		n, data = n+k, data[k:]
	}
	return n, nil
}

func (p *parts) send() error {
	if p.sent++; p.sent == maxParts {
		return fmt.Errorf("%w: more than %d parts of %d bytes", storage.ErrTooLarge, maxParts, p.size)
	}
	if err := p.u.Send(p.buf); err != nil {
		return err
	}
	p.buf = p.buf[:0]
	return nil
}

// Settle returns the outcome of a creation that ended with err, where another attempt may have made the object, whose
// answer was lost. own says whether the object is this creator's, unless lookErr says why that is not known.
func Settle(err error, own bool, lookErr error) error {
	switch {
	case own:
		return nil
	case lookErr != nil && !errors.Is(lookErr, storage.ErrNotFound):
		return fmt.Errorf("whose object is it? %w", lookErr)
	}
	return err
}
