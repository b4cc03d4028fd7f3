package sidecar

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// errMemoryFile means that the sentry has given a file for its memory that the agent would not take.
var errMemoryFile = errors.New("this file cannot be a sandbox's memory file")

// diskTypes are the file systems on which runsc may keep the pages of a sandbox (include/uapi/linux/magic.h). The agent
// has a list of its own, by name: see runsc.CheckMemoryFile.
var diskTypes = []int64{
	unix.BTRFS_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.XFS_SUPER_MAGIC,
	unix.BCACHEFS_SUPER_MAGIC, zfsMagic,
}

// zfsMagic is the type of OpenZFS (ZFS_SUPER_MAGIC in its sources).
const zfsMagic = 0x2fc12fc1

// checkMemoryFile refuses what is neither a file in memory nor a regular file on a disk. It may wait for whoever serves
// the file: that costs this process, and not the agent, which is not bothered with such a file.
func checkMemoryFile(fd int) (onDisk bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, fmt.Errorf("%w: %w", errMemoryFile, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false, fmt.Errorf("%w: %w", errMemoryFile, err)
	}
	inMemory := fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC
	if st.Mode&unix.S_IFMT != unix.S_IFREG || !inMemory && !slices.Contains(diskTypes, fs.Type) {
		return false, fmt.Errorf("%w: it has mode %#o and a file system of type %#x", errMemoryFile, st.Mode, fs.Type)
	}
	return !inMemory, nil
}
