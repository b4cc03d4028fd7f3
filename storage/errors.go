package storage

import (
	"errors"
	"fmt"

	"diapause.dev/storage/format"
)

// Kinds of errors, to be tested with errors.Is. Every error of this package and of a Backend says what was being done,
// and to what.
var (
	// ErrNotFound: the object, or the snapshot, does not exist.
	ErrNotFound = format.ErrNotFound
	// ErrExists: a create-only object, or a snapshot of that key, exists already.
	ErrExists = errors.New("already exists")
	// ErrTruncated: an object is shorter than what was to be read of it.
	ErrTruncated = errors.New("truncated")
	// ErrTooLarge: an object is larger than the caller accepts.
	ErrTooLarge = errors.New("too large")
	// ErrCorrupt: stored bytes are not what was written. See CorruptError.
	ErrCorrupt = format.ErrCorrupt
	// ErrFormat: sound, but of a format that this version does not read.
	ErrFormat = format.ErrFormat
	// ErrIdentity: there is no store, or not the expected one. See Options.Identity.
	ErrIdentity = errors.New("not the store that was expected")
	// ErrInvalidName: a key or an object's name is not allowed.
	ErrInvalidName = format.ErrInvalidName
	// ErrKey: the key that encrypts something, or must encrypt it, is missing.
	ErrKey = format.ErrKey
	// ErrUntrusted: no trusted key has signed the snapshot. See Options.Trusted.
	ErrUntrusted = errors.New("not trusted")
	// ErrTooManyChunks: a snapshot would have more than MaxChunks chunks.
	ErrTooManyChunks = format.ErrTooManyChunks
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
