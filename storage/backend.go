package storage

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Backend keeps named objects. It is the whole of what a place must offer to be a store, and it
// knows nothing of snapshots. storagetest.Run checks an implementation against this contract.
//
// Names are those that ValidateObject accepts; any other name is answered with ErrInvalidName
// before anything is touched. All methods are safe for concurrent use, by any number of processes
// on any number of nodes. A method whose context ends returns an error for which errors.Is holds
// with the context's, and stops its work before it returns.
//
// A backend retries what its own protocol allows it to; a caller need not.
type Backend interface {
	// Create makes an object of the size bytes that r yields; a size of -1 is whatever r yields
	// until io.EOF. It is create-only: when an object of
	// that name exists, that one stays untouched and the error is ErrExists. Of concurrent creators
	// of one name exactly one succeeds. It is all or nothing: nobody ever sees a part of the object,
	// not even when this process or its machine dies; and once Create has returned nil the object
	// survives a power cut. When r fails, or yields more or fewer bytes than size, nothing is made. r may
	// take its time: it is read as far as it goes, and waited for. Where r implements io.WriterTo, that
	// may be used.
	//
	// After ErrExists, ErrNoSpace and ErrInvalidName, and after a failure of r, surely nothing was
	// made by this call. After any other error it is not known: look, or use another name.
	Create(ctx context.Context, name string, r io.Reader, size int64) error

	// Replace makes the object hold data, whether it existed or not. Readers see the old object or
	// the new one, whole, and never neither. Of concurrent calls any one wins. It is meant for small
	// objects (below 16 MiB). Durable once it has returned nil.
	Replace(ctx context.Context, name string, data []byte) error

	// ReadAt fills p with the object's bytes from off on. There are no short reads: it returns nil
	// only with all of p filled. An object that ends earlier is ErrTruncated, an absent one is
	// ErrNotFound; the content of p is unspecified then. off must not be negative. p may be memory
	// that others write at the same time: its content is never relied on.
	ReadAt(ctx context.Context, name string, p []byte, off int64) error

	// ReadAll returns a whole object of at most max bytes, in one request. A larger one is ErrTooLarge,
	// an absent one ErrNotFound.
	ReadAll(ctx context.Context, name string, max int64) ([]byte, error)

	// Stat tells an object's size and age. Absent: ErrNotFound.
	Stat(ctx context.Context, name string) (ObjectInfo, error)

	// List calls fn, from this goroutine, once for each object whose name begins with prefix, in no
	// particular order. Prefix is compared bytewise and need not end at a '/'; "" is all. Objects made
	// or deleted meanwhile may be listed or not; all others are listed exactly once. fn may use the
	// backend, also to delete what it is shown. An error of fn ends the listing and is returned as it
	// is. Nothing found is no error.
	List(ctx context.Context, prefix string, fn func(ObjectInfo) error) error

	// Delete removes an object; durable once it has returned nil. Absent: ErrNotFound, which a caller
	// that repeats a Delete must expect. A reader in the middle of a ReadAt gets its bytes or an error.
	Delete(ctx context.Context, name string) error

	// Location names the place for people and logs: "dir:/var/lib/x", "gs://bucket/prefix".
	Location() string

	// Close releases what the backend holds. No other method may be running or called later.
	Close() error
}

// ObjectInfo is what a Backend says of an object without reading it.
type ObjectInfo struct {
	Name     string
	Size     int64     // bytes
	Modified time.Time // by the backend's clock
}

// Bounds of an object's name, in bytes.
const (
	maxObjectName = 900 // object storage allows 1024 with its prefix
	maxComponent  = 255
)

// ValidateObject returns an ErrInvalidName that says what is wrong with an object's name, or nil.
// A name is a path of components parted by single '/', each of 1 to 255 of a-z, 0-9, '.', '_' and
// '-' and not beginning with '.': nothing that a file system or a URL could take for something else.
func ValidateObject(name string) error {
	if len(name) > maxObjectName {
		return fmt.Errorf("%w: object %.40q…: %d bytes, at most %d allowed", ErrInvalidName, name, len(name), maxObjectName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if !validComponent(part) {
			return fmt.Errorf("%w: object %q: component %q", ErrInvalidName, name, part)
		}
	}
	return nil
}

func validComponent(s string) bool {
	if s == "" || len(s) > maxComponent || s[0] == '.' {
		return false
	}
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
