package sidecar

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// The kernel charges a page of a memory file to the cgroup of the process that touches it first. The sidecar runs
// in the pod's cgroup, and the agent does not. So the sidecar allocates what a read will fill before it passes
// the read on. The agent's write then finds the pages present, and takes a third of the time.

// errAllocate means that the pod cannot get the memory that its snapshot needs.
var errAllocate = errors.New("allocate the sandbox's memory in the pod's cgroup")

// maxDest bounds the size of a memory file, in bytes.
const maxDest = 1 << 44

// allocate allocates the ranges. Mapped are the same ranges in this process. If there is no memory, the error
// wraps errAllocate. If pages cannot be allocated for another reason, there is no error: the agent's write
// allocates them, or says what is wrong.
func (d *dest) allocate(ranges []memmap.FileRange, mapped stateio.LocalClientRanges, log *slog.Logger) error {
	err := d.check(ranges)
	if err == nil && d.onDisk {
		err = populate(mapped)
	} else if err == nil {
		err = d.reserve(ranges)
	}
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w: %w", errAllocate, err)
	}
	if err != nil {
		d.warn.Do(func() { log.Warn("memory is charged to the agent and not to the pod", "error", err) })
	}
	return nil
}

// check refuses ranges outside of the file, and more than one read may have. The sentry chooses the ranges.
func (d *dest) check(ranges []memmap.FileRange) error {
	left := uint64(MaxRead)
	for _, r := range ranges {
		if r.Start >= r.End || r.End > min(d.size, maxDest) || r.Length() > left {
			return fmt.Errorf("range %v of a memory file of %d bytes: %w", r, d.size, unix.EINVAL)
		}
		left -= r.Length()
	}
	return nil
}

// reserve allocates pages of a file in memory. Missing pages become zeros. It never changes the file's size.
func (d *dest) reserve(ranges []memmap.FileRange) error {
	for _, r := range ranges {
		err := again(func() error {
			return unix.Fallocate(d.fd, unix.FALLOC_FL_KEEP_SIZE, int64(r.Start), int64(r.Length()))
		})
		if err != nil {
			return fmt.Errorf("range %v: %w", r, err)
		}
	}
	return nil
}

// populate brings pages of a file on disk into the page cache, because that is what the kernel charges for such a
// file. Fallocate would only reserve disk space. Kernels before 5.14 do not support this.
func populate(mapped stateio.LocalClientRanges) error {
	for _, b := range mapped.Mappings {
		if err := again(func() error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }); err != nil {
			return fmt.Errorf("populate %d bytes: %w", len(b), err)
		}
	}
	return nil
}

// again repeats f while a signal interrupts it.
func again(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
