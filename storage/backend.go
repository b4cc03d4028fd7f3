package storage

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Backend keeps named objects. It is all that a place must offer to be a store, and it knows nothing about snapshots.
// storagetest.Run checks an implementation against this contract.
//
// If ValidateObject refuses a name, a method returns ErrInvalidName before it touches anything. All methods are safe
// for concurrent use, by any number of processes on any number of nodes. If a method's context ends, the method stops
// its work and then returns an error for which errors.Is holds with the context's error.
//
// A backend retries what its own protocol allows. Callers need not retry.
type Backend interface {
	// Create makes an object of the size bytes that r yields. If size is -1, it takes whatever r yields until io.EOF.
	// Create never replaces: if an object of that name exists, it stays untouched and the error is ErrExists. Of
	// concurrent creators of one name exactly one succeeds. Create is all or nothing: nobody ever sees a part of the
	// object, not even if this process or its machine dies. Once Create has returned nil, the object survives a power
	// failure. If r fails, or yields more or fewer bytes than size, nothing is made. r may be slow: Create waits for it.
	// If r implements io.WriterTo, Create may use that.
	//
	// After ErrExists, ErrNoSpace and ErrInvalidName, and after a failure of r, this call has certainly made nothing.
	// After any other error that is not known: look, or use another name.
	Create(ctx context.Context, name string, r io.Reader, size int64) error

	// Replace makes the object hold data, whether it existed or not. A reader always sees either the whole old object or
	// the whole new one. Of concurrent calls any one wins. It is meant for small objects (below 16 MiB). The change is
	// durable once Replace has returned nil.
	Replace(ctx context.Context, name string, data []byte) error

	// ReadAt fills p with the object's bytes from off on. There are no short reads: it returns nil only if all of p is
	// filled. If the object ends earlier, the error is ErrTruncated. If it does not exist, the error is ErrNotFound. After
	// an error the content of p is unspecified. off must not be negative. Others may write to the memory of p at the same
	// time, so a backend must not rely on its content.
	ReadAt(ctx context.Context, name string, p []byte, off int64) error

	// ReadAll returns a whole object of at most max bytes, in one request. If it is larger, the error is ErrTooLarge. If
	// it does not exist, the error is ErrNotFound.
	ReadAll(ctx context.Context, name string, max int64) ([]byte, error)

	// Stat returns an object's size and age. If it does not exist, the error is ErrNotFound.
	Stat(ctx context.Context, name string) (ObjectInfo, error)

	// List calls fn, from this goroutine, once for each object whose name begins with prefix, in no particular order.
	// prefix is compared bytewise and need not end at a '/'; "" matches all objects. Objects that are made or deleted
	// meanwhile may be listed or not; all others are listed exactly once. fn may use the backend, and may delete the
	// object that it gets. An error of fn ends the listing and is returned unchanged. It is no error if nothing is found.
	List(ctx context.Context, prefix string, fn func(ObjectInfo) error) error

	// Delete removes an object. The removal is durable once Delete has returned nil. If the object does not exist, the
	// error is ErrNotFound; a caller that repeats a Delete must expect this. A concurrent ReadAt gets its bytes or an
	// error.
	Delete(ctx context.Context, name string) error

	// Location names the place for people and logs: "dir:/var/lib/x", "gs://bucket/prefix".
	Location() string

	// Close releases what the backend holds. No other method may be running or called later.
	Close() error
}

// ObjectInfo is what a Backend knows about an object without reading it.
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

// ValidateObject returns an ErrInvalidName that says what is wrong with an object's name, or nil. A name consists of
// components separated by single '/'. Each component has 1 to 255 of a-z, 0-9, '.', '_' and '-', and does not begin
// with '.'. So neither a file system nor a URL can take a name for something else.
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
