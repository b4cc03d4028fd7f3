package bucket

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/storage"
)

// maxChecked bounds the object by which a service is checked.
const maxChecked = 64 << 10

// ErrOverwrites is the kind of error for a service that does not keep what was written first.
var ErrOverwrites = errors.New("this object store overwrites objects that it was asked only to create")

// CheckCreateOnly returns an ErrOverwrites if a service ignores the condition under which objects are created: in a
// put, or in the completion of an upload in parts, which completion names for people. It tries both on an object that
// exists, with that object's own bytes. So it changes nothing but an object's time, whatever the service does. Without
// the right to write, CheckCreateOnly finds nothing wrong: who cannot write overwrites nothing.
func CheckCreateOnly(ctx context.Context, b storage.Backend, name, completion string, put, inParts func([]byte) error,
) error {
	data, err := b.ReadAll(ctx, name, maxChecked)
	if err != nil {
		return err
	}
	return errors.Join(refused(b.Location(), "a put", put(data)), refused(b.Location(), completion, inParts(data)))
}

// refused returns an error unless err says that the service has refused to overwrite an object, or that it lets this
// process write nothing.
func refused(location, request string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w (it ignores If-None-Match in %s), so snapshots could be lost there: "+
			"use another service, or a version of it that has conditional writes", location, ErrOverwrites, request)
	case errors.Is(err, storage.ErrExists), errors.Is(err, storage.ErrDenied):
		return nil
	}
	return fmt.Errorf("check whether %s overwrites objects: %w", location, err)
}
