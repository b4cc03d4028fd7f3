package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// LimitAbove returns the tightest memory limit that will bind a container with this cgroupsPath; Unlimited if
// there is none. The path is Linux.CgroupsPath of the container's OCI spec, for cgroupfs or for systemd. The
// container's cgroup need not exist yet: LimitAbove reads the cgroups on the path that do. A kubelet creates the
// pod's cgroup before it has containers made.
func LimitAbove(cgroupsPath string) (int64, error) {
	own, err := MemoryOf(os.Getpid())
	if err != nil {
		return 0, err
	}
	group := filepath.Join("/", hierarchical(cgroupsPath)) // never above the root
	for ; group != "/"; group = filepath.Dir(group) {
		m := &Memory{top: own.top, group: group[1:], files: own.files}
		limit, err := m.Limit()
		if !errors.Is(err, os.ErrNotExist) {
			return limit, err
		}
	}
	return Unlimited, nil
}

// RaiseAbove is [Memory.RaiseBy] for the cgroups of a container with this cgroupsPath that exist. The path is as in
// [LimitAbove].
func RaiseAbove(cgroupsPath string, more int64, own func(dir string) bool) (changes []Change, err error) {
	self, err := MemoryOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	group := filepath.Join("/", hierarchical(cgroupsPath)) // never above the root
	for ; group != "/"; group = filepath.Dir(group) {
		m := &Memory{top: self.top, group: group[1:], files: self.files}
		if has(m.Dir()) {
			return m.RaiseBy(more, own)
		}
	}
	return nil, nil
}

// hierarchical returns the path of a cgroup below the root of its hierarchy. For systemd the OCI spec has
// "slice:prefix:name", and a slice's name contains the names of the slices above it.
func hierarchical(cgroupsPath string) string {
	slice, rest, ok := strings.Cut(cgroupsPath, ":")
	if !ok {
		return cgroupsPath
	}
	prefix, name, _ := strings.Cut(rest, ":")
	var path, above string
	for part := range strings.SplitSeq(strings.TrimSuffix(slice, ".slice"), "-") {
		if part == "" { // "-.slice" is the root
			continue
		}
		above += part
		path = filepath.Join(path, above+".slice")
		above += "-"
	}
	return filepath.Join(path, prefix+"-"+name+".scope")
}

// FreeAbove returns how much memory the cgroups of a container with this cgroupsPath have free, in bytes, without those
// that own reports as the pod's: what the pod shares with others. It is Unlimited if they have no limit. The path is as
// in [LimitAbove]. Cgroups that do not exist are left out.
func FreeAbove(cgroupsPath string, own func(dir string) bool) (int64, error) {
	self, err := MemoryOf(os.Getpid())
	if err != nil {
		return 0, err
	}
	free := int64(Unlimited)
	group := filepath.Join("/", hierarchical(cgroupsPath)) // never above the root
	for ; group != "/"; group = filepath.Dir(group) {
		dir := filepath.Join(self.top, group)
		if own(dir) {
			continue
		}
		l, err := self.files.level(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		free = min(free, l.Free())
	}
	return free, nil
}
