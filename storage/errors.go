package storage

import (
	"errors"
	"fmt"
)

// Kinds of errors, to be tested with errors.Is. Every error of this package and of a Backend says what was being done,
// and to what.
var (
	// ErrNotFound: the object, or the snapshot, does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: a create-only object, or a snapshot of that key, exists already.
	ErrExists = errors.New("already exists")
	// ErrTruncated: an object is shorter than what was to be read of it.
	ErrTruncated = errors.New("truncated")
	// ErrTooLarge: an object is larger than the caller accepts.
	ErrTooLarge = errors.New("too large")
	// ErrCorrupt: stored bytes are not what was written. See CorruptError.
	ErrCorrupt = errors.New("corrupt")
	// ErrFormat: sound, but of a format that this version does not read.
	ErrFormat = errors.New("unsupported format")
	// ErrIdentity: there is no store, or not the expected one. See Options.Identity.
	ErrIdentity = errors.New("not the store that was expected")
	// ErrInvalidName: a key or an object's name is not allowed.
	ErrInvalidName = errors.New("invalid name")
	// ErrKey: the key that encrypts something, or must encrypt it, is missing.
	ErrKey = errors.New("encryption key missing")
	// ErrUntrusted: no trusted key has signed the snapshot. See Options.Trusted.
	ErrUntrusted = errors.New("not trusted")
	// ErrNoSpace: the backend is full. Nothing was created.
	ErrNoSpace = errors.New("no space left in the store")
	// ErrUnavailable: the backend cannot be reached, or fails. This may be temporary.
	ErrUnavailable = errors.New("store unavailable")
	// ErrDenied: the backend refuses the credentials, or they do not allow the operation. It is an ErrUnavailable, because
	// it ends once somebody grants access.
	ErrDenied = fmt.Errorf("%w: access denied", ErrUnavailable)
	// ErrSource: the source of a replication is damaged. An error of this kind is an ErrCorrupt, too.
	ErrSource = errors.New("the source is damaged")
)

// CorruptError says which object is damaged and which snapshot this affects. It is an ErrCorrupt.
type CorruptError struct {
	Object string // the object's name in its backend; empty if only bytes were given
	Key    Key    // the snapshot that was being read; zero when not known
	Reason string
	Err    error // the underlying error, or nil
}

func (e *CorruptError) Error() string {
	s := e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Object != "" {
		s = e.Object + ": " + s
	}
	if e.Key != (Key{}) {
		s = "snapshot " + e.Key.String() + ": " + s
	}
	return "corrupt: " + s
}

// Is makes every CorruptError an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the underlying error.
func (e *CorruptError) Unwrap() error { return e.Err }
