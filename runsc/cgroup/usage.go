package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	cgroups "github.com/containerd/cgroups/v3"
	"github.com/moby/sys/mountinfo"
)

// CPU is the counter of a cgroup's processor time. Its methods may be called concurrently.
type CPU struct {
	file string
	line string        // that begins with this; empty: the whole file
	unit time.Duration // of the number
}

// CPUOf returns the counter of the cgroup that process pid is in now. It looks through the mounts of the calling
// process first, then through those of the processes in others, like [MemoryOf].
func CPUOf(pid int, others ...int) (*CPU, error) {
	controllers, path, err := cgroups.ParseCgroupFileUnified(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("cgroups of process %d: %w", pid, err)
	}
	c := CPU{file: "cpu.stat", line: "usage_usec ", unit: time.Microsecond}
	match := func(m *mountinfo.Info) bool { return m.FSType == "cgroup2" }
	if first, ok := controllers["cpuacct"]; ok {
		c, path = CPU{file: "cpuacct.usage", unit: time.Nanosecond}, first
		match = func(m *mountinfo.Info) bool {
			return m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "cpuacct")
		}
	}
	errs := []error{fmt.Errorf("CPU time of cgroup %s of process %d: %w", path, pid, ErrNotVisible)}
	for _, viewer := range append([]string{"self"}, names(others)...) {
		mounts, err := mountsOf(viewer, match)
		errs = append(errs, err)
		for _, m := range mounts {
			group, err := below(m.Root, path)
			if err != nil {
				continue
			}
			found := c
			found.file = filepath.Join("/proc", viewer, "root", m.Mountpoint, group, c.file)
			if has(found.file) {
				return &found, nil
			}
		}
	}
	return nil, errors.Join(errs...)
}

// Used returns the processor time of all processes that are or were in the cgroup.
func (c *CPU) Used() (time.Duration, error) {
	data, err := os.ReadFile(c.file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		number, ok := strings.CutPrefix(line, c.line)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", c.file, err)
		}
		return time.Duration(n) * c.unit, nil
	}
	return 0, fmt.Errorf("%s has no line %s", c.file, c.line)
}
