package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"

	"diapause.dev/storage"
)

// reads is how often a read is begun whose bytes end too early.
const reads = 3

// errCut says that an answer has ended before all its bytes came.
var errCut = fmt.Errorf("%w: the connection was cut", storage.ErrUnavailable)

// ReadAt implements storage.Backend.
func (b *Backend) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("read %s: negative offset %d", name, off)
	}
	if len(p) == 0 {
		_, err := b.Stat(ctx, name)
		return err
	}
	var o minio.GetObjectOptions
	err := o.SetRange(off, off+int64(len(p))-1)
	if err == nil {
		err = b.get(ctx, name, int64(len(p)), o, func(c *content) error { return c.fill(p, off) })
	}
	if err != nil {
		return fmt.Errorf("read %s: bytes %d+%d: %w", name, off, len(p), err)
	}
	return nil
}

// ReadAll implements storage.Backend.
func (b *Backend) ReadAll(ctx context.Context, name string, max int64) (data []byte, err error) {
	if err := storage.ValidateObject(name); err != nil {
		return nil, err
	}
	err = b.get(ctx, name, max, minio.GetObjectOptions{}, func(c *content) error {
		if c.size > max {
			return fmt.Errorf("%w: %d bytes, at most %d expected", storage.ErrTooLarge, c.size, max)
		}
		data = make([]byte, c.size)
		return c.fill(data, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// content is the answer to a request for an object's content.
type content struct {
	body  io.Reader
	size  int64  // of the body
	bytes string // which these are: the header Content-Range, or empty if all
}

// fill fills p with the object's bytes from off on.
func (c *content) fill(p []byte, off int64) error {
	from := "bytes 0-"
	if c.bytes != "" {
		from = c.bytes
	}
	if !strings.HasPrefix(from, fmt.Sprintf("bytes %d-", off)) {
		return fmt.Errorf("%w: the store sent other bytes, %q", storage.ErrUnavailable, from)
	}
	if c.size < int64(len(p)) {
		return fmt.Errorf("%w: %d bytes are there", storage.ErrTruncated, c.size)
	}
	if _, err := io.ReadFull(c.body, p); err != nil {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return nil
}

// get calls use with an object's content, of which it may read n bytes, again if the content was cut.
func (b *Backend) get(ctx context.Context, name string, n int64, o minio.GetObjectOptions, use func(*content) error,
) (err error) {
	for range reads {
		if err = b.getOnce(ctx, name, n, o, use); !errors.Is(err, errCut) || ctx.Err() != nil {
			break
		}
	}
	return classify(ctx, err)
}

func (b *Backend) getOnce(ctx context.Context, name string, n int64, o minio.GetObjectOptions,
	use func(*content) error,
) error {
	ctx, cancel := bounded(context.WithValue(ctx, contentKey{}, true), n)
	defer cancel()
	body, info, header, err := b.core.GetObject(ctx, b.place.Bucket, b.key(name), o)
	if err != nil {
		return err
	}
	defer body.Close() // nothing was written
	if info.Size < 0 {
		return fmt.Errorf("%w: the store does not say how many bytes it sends", storage.ErrUnavailable)
	}
	return use(&content{body: body, size: info.Size, bytes: header.Get("Content-Range")})
}

// Stat implements storage.Backend.
func (b *Backend) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	if err := storage.ValidateObject(name); err != nil {
		return storage.ObjectInfo{}, err
	}
	info, err := b.head(ctx, name)
	if err != nil {
		return storage.ObjectInfo{}, fmt.Errorf("stat %s: %w", name, err)
	}
	return storage.ObjectInfo{Name: name, Size: info.Size, Modified: info.LastModified}, nil
}

// head returns what the service knows about an object. The answer to a HEAD has no text, so 404 may also be about the
// bucket, or come from another server. Therefore head asks for the content of an object that does not seem to exist.
func (b *Backend) head(ctx context.Context, name string) (info minio.ObjectInfo, err error) {
	for range 2 { // somebody may create it in between
		info, err = b.headOnce(ctx, name)
		if !errors.Is(err, storage.ErrNotFound) {
			break
		}
		err = b.get(ctx, name, 0, minio.GetObjectOptions{}, func(*content) error { return nil })
		if err != nil {
			break
		}
		err = fmt.Errorf("%w: the object comes and goes", storage.ErrUnavailable)
	}
	return info, err
}

func (b *Backend) headOnce(ctx context.Context, name string) (minio.ObjectInfo, error) {
	limited, cancel := bounded(ctx, 0)
	defer cancel()
	info, err := b.core.StatObject(limited, b.place.Bucket, b.key(name), minio.StatObjectOptions{})
	return info, classify(ctx, err)
}

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		if err := storage.ValidateObject(prefix[:i]); err != nil {
			return fmt.Errorf("list %q: %w", prefix, err)
		}
	}
	for after := ""; ; {
		page, err := b.page(ctx, prefix, after, maxPage)
		if err != nil {
			return fmt.Errorf("list %q: %w", prefix, classify(ctx, err))
		}
		for _, o := range page {
			info := storage.ObjectInfo{
				Name: strings.TrimPrefix(o.Key, b.place.Prefix), Size: o.Size, Modified: o.LastModified,
			}
			if storage.ValidateObject(info.Name) != nil {
				continue // not an object of the store
			}
			if err := fn(info); err != nil {
				return err
			}
		}
		if len(page) < maxPage {
			return nil
		}
		after = page[maxPage-1].Key
	}
}

// page returns the next objects after a key, at most n, in the order of their keys. It returns fewer only if there are
// no more.
func (b *Backend) page(ctx context.Context, prefix, after string, n int) (page []minio.ObjectInfo, err error) {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	last := after
	for o := range b.core.ListObjectsIter(ctx, b.place.Bucket, minio.ListObjectsOptions{
		Prefix: b.key(prefix), StartAfter: after, MaxKeys: n, Recursive: true,
	}) {
		if o.Err != nil {
			return nil, o.Err
		}
		if o.Key <= last || !strings.HasPrefix(o.Key, b.key(prefix)) {
			return nil, fmt.Errorf("%w: the store lists %.80q after %.80q", storage.ErrUnavailable, o.Key, last)
		}
		last = o.Key
		if page = append(page, o); len(page) == n {
			break
		}
	}
	return page, ctx.Err()
}

// Delete implements storage.Backend. The service deletes without saying whether there was anything, so Delete looks
// first.
func (b *Backend) Delete(ctx context.Context, name string) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	_, err := b.head(ctx, name)
	if err == nil {
		limited, cancel := bounded(ctx, 0)
		defer cancel()
		err = classify(ctx, b.core.RemoveObject(limited, b.place.Bucket, b.key(name), minio.RemoveObjectOptions{}))
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}
