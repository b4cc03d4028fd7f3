package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"diapause.dev/storage"
)

// maxChecked bounds the object that CheckCreateOnly uses.
const maxChecked = 64 << 10

// ErrOverwrites is the kind of error for a service that does not keep what was written first.
var ErrOverwrites = errors.New("this object store overwrites objects that it was asked only to create")

// CheckCreateOnly returns an ErrOverwrites if the service ignores the condition under which objects are created: in a
// put, or in the completion of an upload in parts. It tries both on an object that exists, with that object's own
// bytes. So it changes nothing and leaves nothing, whatever the service does. Without the right to write,
// CheckCreateOnly finds nothing wrong: who cannot write overwrites nothing.
func (b *Backend) CheckCreateOnly(ctx context.Context, name string) error {
	data, err := b.ReadAll(ctx, name, maxChecked)
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
	u := b.newUpload(ctx, name, int64(len(data)))
	defer u.abort()
	u.buf = append(u.buf, data...)
	err := u.send()
	if err == nil {
		err = u.complete()
	}
	return err
}

// refused returns an error unless err says that the service has refused to overwrite an object.
func (b *Backend) refused(request string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w (it ignores If-None-Match in %s), so snapshots could be lost there: "+
			"use another service, or a version of it that has conditional writes", b.Location(), ErrOverwrites, request)
	case errors.Is(err, storage.ErrExists), errors.Is(err, storage.ErrDenied), conflict(err):
		return nil
	}
	return fmt.Errorf("check whether %s overwrites objects: %w", b.Location(), err)
}
