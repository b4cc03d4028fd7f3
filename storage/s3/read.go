package s3

import (
	"context"
	"errors"
	"fmt"

	"github.com/minio/minio-go/v7"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// get is for bucket.NewReader.
func (b *Backend) get(ctx context.Context, name string, off, n int64, use func(*bucket.Content) error) error {
	var o minio.GetObjectOptions
	if off >= 0 {
		if err := o.SetRange(off, off+n-1); err != nil {
			return err
		}
	}
	body, info, header, err := b.core.GetObject(ctx, b.place.Bucket, b.key(name), o)
	if err != nil {
		return err
	}
	defer body.Close() // nothing was written
	return use(&bucket.Content{Body: body, Size: info.Size, Range: header.Get("Content-Range")})
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
		err = b.readable(ctx, name)
		if err != nil {
			break
		}
		err = fmt.Errorf("%w: the object comes and goes", storage.ErrUnavailable)
	}
	return info, err
}

// readable returns an error unless an object's content can be had.
func (b *Backend) readable(ctx context.Context, name string) error {
	limited, cancel := bucket.Bounded(bucket.ForContent(ctx), 0)
	defer cancel()
	return classify(ctx, b.get(limited, name, -1, 0, func(*bucket.Content) error { return nil }))
}

func (b *Backend) headOnce(ctx context.Context, name string) (minio.ObjectInfo, error) {
	limited, cancel := bucket.Bounded(ctx, 0)
	defer cancel()
	info, err := b.core.StatObject(limited, b.place.Bucket, b.key(name), minio.StatObjectOptions{})
	return info, classify(ctx, err)
}

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	return bucket.List(ctx, b.place.Prefix, prefix, fn,
		func(ctx context.Context, after string) ([]storage.ObjectInfo, string, error) {
			return b.page(ctx, prefix, after, bucket.MaxPage)
		})
}

// page returns the next objects after a key, at most n, in the order of their keys. It returns fewer only if there are
// no more, and otherwise the last key.
func (b *Backend) page(ctx context.Context, prefix, after string, n int) (page []storage.ObjectInfo, last string,
	err error,
) {
	limited, cancel := bucket.Bounded(ctx, 0)
	defer cancel()
	for o := range b.core.ListObjectsIter(limited, b.place.Bucket, minio.ListObjectsOptions{
		Prefix: b.key(prefix), StartAfter: after, MaxKeys: n, Recursive: true,
	}) {
		if o.Err != nil {
			return nil, "", classify(ctx, o.Err)
		}
		page = append(page, storage.ObjectInfo{Name: o.Key, Size: o.Size, Modified: o.LastModified})
		if len(page) == n {
			last = o.Key
			break
		}
	}
	return page, last, classify(ctx, limited.Err())
}

// Delete implements storage.Backend. The service deletes without saying whether there was anything, so Delete looks
// first.
func (b *Backend) Delete(ctx context.Context, name string) error {
	if err := storage.ValidateObject(name); err != nil {
		return err
	}
	_, err := b.head(ctx, name)
	if err == nil {
		limited, cancel := bucket.Bounded(ctx, 0)
		defer cancel()
		err = classify(ctx, b.core.RemoveObject(limited, b.place.Bucket, b.key(name), minio.RemoveObjectOptions{}))
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}
