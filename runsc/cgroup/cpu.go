package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cgroups "github.com/containerd/cgroups/v3"
	"github.com/moby/sys/mountinfo"
)

// quota is a file with the limit of a cgroup's processor time, by version of cgroups.
type quota struct {
	name string
	none func(is string) string // the content that means no limit, given the present content
}

// The kernel's documentation has them in scheduler/sched-bwc.rst and admin-guide/cgroup-v2.rst.
var (
	quota1 = quota{"cpu.cfs_quota_us", func(string) string { return "-1" }}
	quota2 = quota{"cpu.max", func(is string) string {
		_, period, _ := strings.Cut(is, " ")
		return strings.TrimSpace("max " + period)
	}}
)

// UnlimitCPU returns the changes that take the CPU limit from a cgroup and those above it, but only where
// own reports that the level is the pod's. The cgroup is that of a container with this cgroupsPath, see [LimitAbove];
// it need not exist yet. What else decides about processor time, such as weights, stays. UnlimitCPU changes nothing
// yet: see [Apply].
func UnlimitCPU(cgroupsPath string, own func(dir string) bool) (changes []Change, err error) {
	top, group, q, err := cpuOf(os.Getpid(), cgroupsPath)
	if err != nil {
		return nil, err
	}
	for ; group != "/"; group = filepath.Dir(group) {
		dir := filepath.Join(top, group)
		if !own(dir) {
			continue
		}
		path := filepath.Join(dir, q.name)
		is, err := read(path)
		if errors.Is(err, os.ErrNotExist) { // not made yet, or without the controller
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("CPU limit: %w", err)
		}
		if none := q.none(is); is != none {
			changes = append(changes, Change{File: path, Was: is, From: is, Is: none})
		}
	}
	return changes, nil
}

// cpuOf returns where process pid sees the hierarchy with the CPU controller, and the place of a cgroupsPath in it.
func cpuOf(pid int, cgroupsPath string) (top, group string, q quota, err error) {
	controllers, _, err := cgroups.ParseCgroupFileUnified(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", "", q, fmt.Errorf("cgroups of process %d: %w", pid, err)
	}
	q = quota2
	if _, ok := controllers["cpu"]; ok {
		q = quota1
	}
	mounts, err := mountsOf("self", func(m *mountinfo.Info) bool {
		if q.name == quota2.name {
			return m.FSType == "cgroup2"
		}
		return m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "cpu")
	})
	if err == nil && len(mounts) == 0 {
		err = errors.New("no mount shows the cgroups with the CPU controller")
	}
	if err != nil {
		return "", "", q, err
	}
	group, err = below(mounts[0].Root, filepath.Join("/", hierarchical(cgroupsPath)))
	return mounts[0].Mountpoint, filepath.Join("/", group), q, err
}
