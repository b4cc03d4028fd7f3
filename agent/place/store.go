package place

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/storage"
)

// MakeStore creates a store at a location, in the syntax of --store, unless there is one. It returns the store's
// identity and whether it was created. It uses this process's own credentials.
func MakeStore(ctx context.Context, location string, acceptNetwork bool) (identity string, made bool, err error) {
	b, err := Access{MayMake: true, AcceptNetwork: acceptNetwork}.Open(ctx, location)
	if err != nil {
		return "", false, err
	}
	defer b.Close()
	_, err = b.ReadAll(ctx, storage.Marker, 0) // limit 0: an existing marker is too large for it
	made = errors.Is(err, storage.ErrNotFound)
	s, err := storage.Open(ctx, b, storage.Options{})
	if err == nil {
		err = CheckCreateOnly(ctx, b)
	}
	if err != nil {
		return "", false, err
	}
	return s.Identity(), made, nil
}

// CheckCreateOnly returns an error if the service behind a backend lets a second writer overwrite the first. Only some
// backends have to be asked. There must be a store in b.
func CheckCreateOnly(ctx context.Context, b storage.Backend) error {
	asked, ok := b.(interface {
		CheckCreateOnly(ctx context.Context, name string) error
	})
	if !ok {
		return nil
	}
	return asked.CheckCreateOnly(ctx, storage.Marker)
}

// CheckStore returns an error if there is no store at a location. It makes none.
func (a Access) CheckStore(ctx context.Context, location string) error {
	b, err := a.Open(ctx, location)
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.ReadAll(ctx, storage.Marker, maxMarker); err != nil {
		return fmt.Errorf("no store at %s: %w", location, err)
	}
	return nil
}

// maxMarker bounds what CheckStore reads.
const maxMarker = 64 << 10
