package azblob

import (
	"context"
	"crypto/rand"
	"strings"

	"diapause.dev/storage/bucket"
)

// CheckCreateOnly returns an error if the service overwrites objects, as bucket.CheckCreateOnly does.
func (b *Backend) CheckCreateOnly(ctx context.Context, name string) error {
	return bucket.CheckCreateOnly(ctx, b, name, "a list of blocks",
		func(data []byte) error { return b.put(ctx, name, data, createOnly(rand.Text())) },
		func(data []byte) error { return b.putInBlocks(ctx, name, data) })
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
