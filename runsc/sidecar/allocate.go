package sidecar

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// A page of a memory file is charged to the cgroup of the process that touches it first. The sidecar runs in
// the pod's cgroup and the agent does not, so the sidecar allocates what a read will fill before it passes the
// read on. The agent's write then finds the pages there, and is done in a third of the time.

// errAllocate says that the pod cannot have the memory that it was restored with.
var errAllocate = errors.New("allocate the sandbox's memory in the pod's cgroup")

// maxDest bounds the size of a memory file, in bytes.
const maxDest = 1 << 44

// allocate allocates the ranges, which lie in the mapped parts. An error wraps errAllocate: there is no memory.
// Where pages cannot be allocated for another reason, the agent's write does it, or says what is wrong.
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

// check refuses ranges that are not in the file, or more than a read may have. The sentry chooses them.
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

// reserve allocates pages of a file in memory, as zeros where there are none. It never changes the file's size.
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

// populate brings pages of a file on disk into the page cache, which is what is charged of it. Fallocate would
// take room on the disk alone. A kernel before 5.14 does not know how.
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

// OnDisk reports whether a memory file's pages are page cache that the kernel can write back, as those of an overlay's
// file are. If that is not known, they are taken for memory.
func OnDisk(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type != unix.TMPFS_MAGIC && st.Type != unix.HUGETLBFS_MAGIC
}
