package volume

import (
	"errors"
	"fmt"
)

// Bounds of a stream.
const (
	// MaxEntries bounds the entries of a stream.
	MaxEntries = 1 << 20
	// maxName and maxTarget bound names and the targets of symbolic links, in bytes (PATH_MAX).
	maxName   = 4095
	maxTarget = 4095
	// maxHeld bounds the names that are in memory at a time, in bytes.
	maxHeld = 256 << 20
	// maxDepth bounds how deep directories are nested. Each open one takes a descriptor.
	maxDepth = 256
	// maxExtents bounds the number of pieces of a file with holes.
	maxExtents = 1 << 13
	// maxAttributes bounds the extended attributes of a file, in bytes.
	maxAttributes = 256 << 10
)

// ErrLimit is the kind of error for a volume or stream that exceeds a bound.
var ErrLimit = errors.New("too much")

// tooMany counts one more, and returns an error once there are more than limit.
func tooMany(n *int, limit int, what string) error {
	if *n++; *n > limit {
		return fmt.Errorf("%w: more than %d %s", ErrLimit, limit, what)
	}
	return nil
}
