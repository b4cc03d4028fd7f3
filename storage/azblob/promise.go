package azblob

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"diapause.dev/storage/bucket"
)

// CheckCreateOnly returns a bucket.ErrOverwrites if the service ignores the condition under which objects are created:
// in a put, or in the request that puts blocks together. It tries both on an object that exists, with that object's own
// bytes. So it changes nothing but an object's time, whatever the service does. Without the right to write,
// CheckCreateOnly finds nothing wrong: who cannot write overwrites nothing.
func (b *Backend) CheckCreateOnly(ctx context.Context, name string) error {
	data, err := b.ReadAll(ctx, name, bucket.MaxChecked)
	if err != nil {
		return err
	}
	return errors.Join(
		bucket.Refused(b.Location(), "a put", b.put(ctx, name, data, createOnly(rand.Text()))),
		bucket.Refused(b.Location(), "a list of blocks", b.putInBlocks(ctx, name, data)),
	)
}

// putInBlocks makes an object of one block. The block's identifier is always the same, so that blocks do not become
// many on an object that is checked often.
func (b *Backend) putInBlocks(ctx context.Context, name string, data []byte) error {
	u := b.newUpload(ctx, name)
	u.token = strings.Repeat("0", len(u.token))
	if err := u.Send(data); err != nil {
		return err
	}
	return u.complete()
}
