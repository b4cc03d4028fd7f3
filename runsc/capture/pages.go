package capture

import "gvisor.dev/gvisor/pkg/sentry/memmap"

// Pages takes the pages of a paused sandbox.
type Pages interface {
	// Register announces a memory file by its number and a descriptor of it that stays valid
	// until Capture is called no more. It is called before the first Capture of that file, by one
	// goroutine at a time.
	Register(file int, fd int, size uint64) error

	// Capture takes the given ranges of a registered memory file, in order, as the bytes of
	// pages.img from off on. It returns when they may change. Ranges are checked to lie within the
	// registered size. It is called concurrently for bytes that do not overlap.
	Capture(file int, ranges []memmap.FileRange, off int64) error
}

// Discard is a Pages that acknowledges everything and takes nothing: the floor under the pause
// that any other Pages can reach.
type Discard struct{}

// Register implements Pages.
func (Discard) Register(int, int, uint64) error { return nil }

// Capture implements Pages.
func (Discard) Capture(int, []memmap.FileRange, int64) error { return nil }

// Refuse is a Pages that takes nothing and fails with its error: the save fails, and the sandbox
// runs on. A workload that has its own sandbox saved learns of it so; of a gofer that hangs up
// before the save has begun gVisor does not tell it.
type Refuse struct{ Err error }

// Register implements Pages.
func (r Refuse) Register(int, int, uint64) error { return r.Err }

// Capture implements Pages.
func (r Refuse) Capture(int, []memmap.FileRange, int64) error { return r.Err }
