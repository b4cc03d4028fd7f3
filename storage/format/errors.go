package format

import "errors"

// Kinds of errors, to be tested with errors.Is. Package storage has more, and names these, too.
var (
	// ErrNotFound: the object, or the snapshot, does not exist.
	ErrNotFound = errors.New("not found")
	// ErrCorrupt: stored bytes are not what was written. See CorruptError.
	ErrCorrupt = errors.New("corrupt")
	// ErrFormat: sound, but of a format that this version does not read.
	ErrFormat = errors.New("unsupported format")
	// ErrInvalidName: a key or an object's name is not allowed.
	ErrInvalidName = errors.New("invalid name")
	// ErrKey: the key that encrypts something, or must encrypt it, is missing.
	ErrKey = errors.New("encryption key missing")
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

// CorruptErrors returns all the CorruptErrors in err, in order.
func CorruptErrors(err error) (all []*CorruptError) {
	switch e := err.(type) {
	case nil:
	case *CorruptError:
		all = append(all, e)
	case interface{ Unwrap() error }:
		all = CorruptErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, CorruptErrors(err)...)
		}
	}
	return all
}
