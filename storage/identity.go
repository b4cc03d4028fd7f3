package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"diapause.dev/storage/format"
)

// identityObject holds the identity of a store that was made before stores had one. No namespace can have this name.
const identityObject = "diapause_id.json"

// markerContent is the content of diapause.json and of identityObject.
type markerContent struct {
	Product string `json:"product"`
	Format  int    `json:"format,omitempty"`
	ID      string `json:"id,omitempty"`
}

const maxMarker = 64 << 10

// identity tells a store from all others.
type identity struct {
	objects *objects
	id      string
}

func newIdentity() string { return strings.ToLower(rand.Text()) }

// Identity returns the store's identity: 26 random letters and digits. It never changes, and is the same for everybody
// who opens the store.
func (s *identity) Identity() string { return s.id }

// identify finds out the identity of the store in the backend. If no particular identity is expected, identify makes
// what is missing.
func (s *identity) identify(ctx context.Context, expected string) (err error) {
	s.id, err = s.readMarker(ctx)
	if errors.Is(err, ErrNotFound) {
		if expected != "" {
			return fmt.Errorf("%w: there is no store, and store %s was expected", ErrIdentity, expected)
		}
		s.id, err = s.makeMarker(ctx)
	}
	if err == nil && s.id == "" {
		s.id, err = s.lateIdentity(ctx, expected == "")
	}
	if err == nil && expected != "" && s.id != expected {
		err = fmt.Errorf("%w: it is store %q, and store %s was expected", ErrIdentity, s.id, expected)
	}
	return err
}

// CheckIdentity asks the backend whether it still holds this store. If it holds none, or another, because somebody has
// replaced it, the error is of kind ErrIdentity.
func (s *identity) CheckIdentity(ctx context.Context) error {
	found, err := s.readMarker(ctx)
	if err == nil && found == "" {
		found, err = s.lateIdentity(ctx, false)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: there is no store any longer, and it was store %s", ErrIdentity, s.id)
	case err == nil && found != s.id:
		return fmt.Errorf("%w: it is store %q now, and was store %s", ErrIdentity, found, s.id)
	}
	return err
}

// Probe returns nil if the store answers, or else why it cannot be read now. It reads one small object, and makes
// nothing. It does not check which store answers: that an object does not exist is an answer, too.
func (s *identity) Probe(ctx context.Context) error {
	if _, err := s.objects.readAll(ctx, format.Marker, maxMarker); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("probe store %s: %w", s.objects.location(), err)
	}
	return nil
}

// readMarker checks diapause.json, and returns the identity in it, if there is one.
func (s *identity) readMarker(ctx context.Context) (id string, err error) {
	c, err := s.readIdentity(ctx, format.Marker)
	if err != nil {
		return "", err
	}
	if c.Format != format.Version {
		return "", fmt.Errorf("%w: store of version %d, this is version %d", ErrFormat, c.Format, format.Version)
	}
	return c.ID, nil
}

// makeMarker makes the backend a store, unless another process is faster.
func (s *identity) makeMarker(ctx context.Context) (id string, err error) {
	if err := s.createOnce(ctx, format.Marker,
		markerContent{Product: "diapause", Format: format.Version, ID: newIdentity()}); err != nil {
		return "", err
	}
	return s.readMarker(ctx)
}

// lateIdentity returns the identity of a store that was made without one. If the store has none yet and give is true,
// lateIdentity gives it one.
func (s *identity) lateIdentity(ctx context.Context, give bool) (string, error) {
	c, err := s.readIdentity(ctx, identityObject)
	if errors.Is(err, ErrNotFound) {
		if !give {
			return "", nil
		}
		if err := s.createOnce(ctx, identityObject, markerContent{Product: "diapause", ID: newIdentity()}); err != nil {
			return "", err
		}
		c, err = s.readIdentity(ctx, identityObject)
	}
	if err == nil && c.ID == "" {
		err = &CorruptError{Object: identityObject, Reason: "holds no identity"}
	}
	return c.ID, err
}

func (s *identity) readIdentity(ctx context.Context, object string) (c markerContent, err error) {
	data, err := s.objects.readAll(ctx, object, maxMarker)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil || c.Product != "diapause" || !validIdentity(c.ID) {
		return c, &CorruptError{Object: object, Reason: "not a store's", Err: err}
	}
	return c, nil
}

// validIdentity reports whether an identity can be shown and compared: "", or a component of an object's name.
func validIdentity(id string) bool { return id == "" || len(id) <= 64 && validComponent(id) }

// createOnce creates an object. It is no error if the object already exists.
func (s *identity) createOnce(ctx context.Context, name string, c markerContent) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	err = s.objects.backend.Create(ctx, name, bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}
