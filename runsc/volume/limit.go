package volume

import (
	"errors"
	"fmt"
)

// Bounds of what a stream may hold.
const (
	// MaxEntries bounds the entries of a stream.
	MaxEntries = 1 << 20
	// maxName and maxTarget bound names and the targets of symbolic links, in bytes (PATH_MAX).
	maxName   = 4095
	maxTarget = 4095
	// maxHeld bounds the names that are held in memory, in bytes.
	maxHeld = 256 << 20
	// maxDepth bounds how deep directories lie in each other: each that is open is a descriptor.
	maxDepth = 256
	// maxExtents bounds in how many pieces a file with holes is taken.
	maxExtents = 1 << 13
	// maxAttributes bounds the extended attributes of a file, in bytes.
	maxAttributes = 256 << 10
)

// ErrLimit: there is more in a volume than is taken.
var ErrLimit = errors.New("too much")

// tooMany counts one more of at most limit.
func tooMany(n *int, limit int, what string) error {
	if *n++; *n > limit {
		return fmt.Errorf("%w: more than %d %s", ErrLimit, limit, what)
	}
	return nil
}
