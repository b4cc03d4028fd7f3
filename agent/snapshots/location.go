package snapshots

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// local reports whether a store is a directory, and so within reach of this node's file system.
func local(location string) bool { return strings.HasPrefix(location, "dir:") }

// diskTypes are file systems that two nodes never share.
var diskTypes = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
	unix.TMPFS_MAGIC,
}

// disk reports whether a store is in a directory that is there, and whether that is on a disk of this machine alone.
func disk(location string) (there, own bool) {
	path, ok := strings.CutPrefix(location, "dir:")
	var st unix.Statfs_t
	if !ok || unix.Statfs(path, &st) != nil {
		return false, false
	}
	return true, slices.Contains(diskTypes, int64(st.Type))
}
