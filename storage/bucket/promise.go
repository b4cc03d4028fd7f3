package bucket

import (
	"errors"
	"fmt"

	"diapause.dev/storage"
)

// MaxChecked bounds the object by which a service is checked.
const MaxChecked = 64 << 10

// ErrOverwrites is the kind of error for a service that does not keep what was written first.
var ErrOverwrites = errors.New("this object store overwrites objects that it was asked only to create")

// Refused returns an error unless err says that the service has refused to overwrite an object, or that it lets this
// process write nothing.
func Refused(location, request string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w (it ignores If-None-Match in %s), so snapshots could be lost there: "+
			"use another service, or a version of it that has conditional writes", location, ErrOverwrites, request)
	case errors.Is(err, storage.ErrExists), errors.Is(err, storage.ErrDenied):
		return nil
	}
	return fmt.Errorf("check whether %s overwrites objects: %w", location, err)
}
