package local

import (
	"errors"
	"fmt"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// kernelFacts returns which kernel and which cgroups the node has, and what this kernel cannot do. While the agent
// runs, they stay as they are.
func kernelFacts() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("ask for the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	if lacksCalls() {
		return "", fmt.Errorf("linux %s cannot hand on files of other processes, so no pod can be saved: use Linux 5.6 or "+
			"newer", release)
	}
	// No file has this descriptor, so a kernel that knows the call refuses it.
	err := unix.Cachestat(^uint(0), &unix.CachestatRange{}, &unix.Cachestat_t{}, 0)
	text := describeKernel(release, cgroups.Mode(), !errors.Is(err, unix.ENOSYS))
	return text + describeKernelConfig("/proc", release), nil
}

// lacksCalls reports whether the kernel does not know system calls that every checkpoint makes. A kernel that knows
// them refuses these descriptors.
func lacksCalls() bool {
	_, err := unix.PidfdGetfd(-1, -1, 0)
	_, openErr := unix.Openat2(-1, "", &unix.OpenHow{})
	return errors.Is(err, unix.ENOSYS) || errors.Is(openErr, unix.ENOSYS)
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
