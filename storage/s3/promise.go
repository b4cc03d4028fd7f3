package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// CheckCreateOnly returns a bucket.ErrOverwrites if the service ignores the condition under which objects are created:
// in a put, or in the completion of an upload in parts. It tries both on an object that exists, with that object's own
// bytes. So it changes nothing and leaves nothing, whatever the service does. Without the right to write,
// CheckCreateOnly finds nothing wrong: who cannot write overwrites nothing.
func (b *Backend) CheckCreateOnly(ctx context.Context, name string) error {
	data, err := b.ReadAll(ctx, name, bucket.MaxChecked)
	if err != nil {
		return err
	}
	return errors.Join(
		b.refused("a put", b.put(ctx, name, data, createOnly(rand.Text()))),
		b.refused("the completion of an upload in parts", b.putInParts(ctx, name, data)),
	)
}

// putInParts makes an object of one part.
func (b *Backend) putInParts(ctx context.Context, name string, data []byte) error {
	u := b.newUpload(ctx, name)
	defer u.Abort()
	err := u.Send(data)
	if err == nil {
		err = u.complete()
	}
	return err
}

// refused returns an error unless err says that the service has refused to overwrite an object. A conflict does.
func (b *Backend) refused(request string, err error) error {
	if conflict(err) {
		err = fmt.Errorf("%w: %w", storage.ErrExists, err)
	}
	return bucket.Refused(b.Location(), request, err)
}
