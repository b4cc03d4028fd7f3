package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	cgroups "github.com/containerd/cgroups/v3"
	"github.com/moby/sys/mountinfo"
)

// ErrNotVisible is the kind of error for a process whose cgroup is visible through no mount.
var ErrNotVisible = errors.New("no mount shows its memory cgroup")

// MemoryOf returns the memory cgroup that process pid is in now. It looks through the mounts of the calling
// process first, because a container often sees only its own cgroup, then through those of the processes in
// others. The caller must be allowed to trace these.
func MemoryOf(pid int, others ...int) (*Memory, error) {
	controllers, unified, err := cgroups.ParseCgroupFileUnified(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("cgroups of process %d: %w", pid, err)
	}
	wanted := place{path: unified, files: &v2}
	if path, ok := controllers["memory"]; ok {
		wanted = place{path: path, files: &v1}
	}
	errs := []error{fmt.Errorf("cgroup %s of process %d: %w", wanted.path, pid, ErrNotVisible)}
	for _, viewer := range append([]string{"self"}, names(others)...) {
		m, err := wanted.seenBy(viewer)
		if m != nil {
			return m, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// MemoryAt returns the memory cgroup with the directory dir, which lies below a mount at top.
func MemoryAt(top, dir string) (*Memory, error) {
	group, err := filepath.Rel(top, dir)
	if err != nil || !filepath.IsLocal(group) {
		return nil, fmt.Errorf("cgroup %s is not below %s: %w", dir, top, ErrNotVisible)
	}
	return &Memory{top: top, group: group, files: filesIn(dir)}, nil
}

func names(pids []int) (out []string) {
	for _, pid := range pids {
		out = append(out, fmt.Sprint(pid))
	}
	return out
}

// place is where a cgroup is in its hierarchy.
type place struct {
	path  string // as /proc/PID/cgroup says
	files *files
}

// seenBy returns the cgroup as the process viewer sees it, or nil if that process does not see it.
func (p place) seenBy(viewer string) (*Memory, error) {
	mounts, err := mountsOf(viewer, p.files.isMount)
	if err != nil {
		return nil, err
	}
	for _, mount := range mounts {
		group, err := below(mount.Root, p.path)
		if err != nil {
			continue
		}
		top := mount.Mountpoint
		if viewer != "self" {
			top = filepath.Join("/proc", viewer, "root", top)
		}
		m := &Memory{top: top, group: group, files: p.files}
		if has(m.Dir()) {
			return m, nil
		}
	}
	return nil, nil
}

// below returns a cgroup's path relative to a mount's root. Both arguments are relative to the root of the
// caller's cgroup namespace. Outside of that namespace they begin with "/..".
func below(root, path string) (string, error) {
	rel, err := filepath.Rel(relative(root), relative(path))
	if err == nil && !filepath.IsLocal(rel) {
		err = ErrNotVisible
	}
	return rel, err
}

func relative(path string) string { return strings.TrimPrefix(path, "/") }

// isMount reports whether a mount shows the hierarchy that has these files.
func (f *files) isMount(m *mountinfo.Info) bool {
	if f == &v2 {
		return m.FSType == "cgroup2"
	}
	return m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "memory")
}
