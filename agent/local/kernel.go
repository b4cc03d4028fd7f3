package local

import (
	"errors"
	"fmt"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// checkKernel says which kernel and which cgroups the node has, and what this kernel cannot do.
func checkKernel() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("ask for the kernel's version: %w", err)
	}
	// No file has this descriptor, so a kernel that knows the call refuses it.
	err := unix.Cachestat(^uint(0), &unix.CachestatRange{}, &unix.Cachestat_t{}, 0)
	return describeKernel(unix.ByteSliceToString(u.Release[:]), cgroups.Mode(), !errors.Is(err, unix.ENOSYS)), nil
}

// describeKernel says what there is to know of a kernel. seesHoles: it has cachestat, see package gofer.
func describeKernel(release string, mode cgroups.CGMode, seesHoles bool) string {
	versions := map[cgroups.CGMode]string{
		cgroups.Legacy: "cgroup v1", cgroups.Hybrid: "cgroup v1", cgroups.Unified: "cgroup v2",
		cgroups.Unavailable: "no cgroups",
	}
	text := "Linux " + release + ", " + versions[mode]
	if !seesHoles {
		text += "; attention: before Linux 6.5 a hostile pod can have the agent charged for its memory, up to the size of " +
			"its snapshot"
	}
	return text
}
