package s3

import (
	"context"
	"crypto/rand"
	"fmt"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// CheckCreateOnly returns an error if the service overwrites objects, as bucket.CheckCreateOnly does.
func (b *Backend) CheckCreateOnly(ctx context.Context, name string) error {
	return bucket.CheckCreateOnly(ctx, b, name, "the completion of an upload in parts",
		func(data []byte) error { return refusal(b.put(ctx, name, data, createOnly(rand.Text()))) },
		func(data []byte) error { return refusal(b.putInParts(ctx, name, data)) })
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

// refusal takes a conflict with another request for a refusal to overwrite an object.
func refusal(err error) error {
	if conflict(err) {
		return fmt.Errorf("%w: %w", storage.ErrExists, err)
	}
	return err
}
