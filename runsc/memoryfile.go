package runsc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// ErrMemoryFile means that a sentry has given a file that nobody may wait for: reading it might block.
var ErrMemoryFile = errors.New("this file cannot be a sandbox's memory file")

// diskTypes are the file systems on which runsc may keep the pages of a sandbox (include/uapi/linux/magic.h). None of
// them asks a process of somebody else for the bytes of a file, as FUSE does.
var diskTypes = []int64{
	unix.BCACHEFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, zfsMagic,
}

// zfsMagic is the type of OpenZFS (ZFS_SUPER_MAGIC in its sources).
const zfsMagic = 0x2fc12fc1

// CheckMemoryFile returns an error of kind ErrMemoryFile unless fd, which came from a sentry, is a file in memory, or a
// regular file on a disk. It waits for nobody longer than a second, whatever fd is. Reading and writing the file then
// waits for nobody but this node's kernel and disks.
func CheckMemoryFile(fd int) (onDisk bool, err error) {
	if inMemory(fd) {
		return false, nil
	}
	var st unix.Statx_t
	// With AT_STATX_DONT_SYNC even a FUSE file answers from the kernel's cache.
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return false, fmt.Errorf("%w: %w", ErrMemoryFile, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, fmt.Errorf("%w: it is not a regular file (mode %#o)", ErrMemoryFile, st.Mode)
	}
	kind, err := fileSystem(fd)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrMemoryFile, err)
	}
	if !slices.Contains(diskTypes, kind) {
		return false, fmt.Errorf("%w: it is on a file system of type %#x", ErrMemoryFile, kind)
	}
	return true, nil
}

// inMemory reports whether fd is a file in shared memory: only those know about seals. It never blocks.
func inMemory(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

// fileSystemTime is how long a file system may take to say what it is. Those of the kernel say so at once.
const fileSystemTime = time.Second

// asking has an element for each question that a file system has not answered. There is a thread for each: a hostile
// process that serves a file system must not take all threads that Go allows.
var asking = make(chan struct{}, 64)

// fileSystem returns the type of a file's file system. FUSE passes the question on to its process, which may be
// hostile; so fileSystem does not wait for the answer for long.
func fileSystem(fd int) (kind int64, err error) {
	select {
	case asking <- struct{}{}:
	default:
		return 0, fmt.Errorf("%d file systems have not said what they are", cap(asking))
	}
	type answer struct {
		kind int64
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-asking }()
		var fs unix.Statfs_t
		err := unix.Fstatfs(fd, &fs)
		answers <- answer{fs.Type, err}
	}()
	select {
	case a := <-answers:
		return a.kind, a.err
	case <-time.After(fileSystemTime):
		return 0, errors.New("its file system does not answer")
	}
}
