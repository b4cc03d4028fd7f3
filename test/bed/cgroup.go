package bed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroupGrace is how long the kernel may take to let go of the cgroup of a
// process that is dead.
const cgroupGrace = 10 * time.Second

// makeCgroup makes the cgroup of that path with every controller, in the one
// hierarchy, or in each where there are several.
func makeCgroup(path string) error {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err == nil {
		return makeIn(cgroupRoot, path, delegate)
	}
	tops, err := filepath.Glob(filepath.Join(cgroupRoot, "*", "cgroup.clone_children")) // as only the first version has
	if err != nil || len(tops) == 0 {
		return fmt.Errorf("there are no cgroups at %s", cgroupRoot)
	}
	for _, top := range tops {
		if err := makeIn(filepath.Dir(top), path, inheritCPUs); err != nil {
			return err
		}
	}
	return nil
}

// makeIn makes the directories of path below top, and calls prepare for each
// with its parent.
func makeIn(top, path string, prepare func(parent, dir string) error) error {
	for name := range strings.SplitSeq(path, "/") {
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := prepare(top, dir); err != nil {
			return fmt.Errorf("prepare the cgroup %s: %w", dir, err)
		}
		top = dir
	}
	return nil
}

// delegate lets dir have all controllers that its parent has.
func delegate(parent, _ string) error {
	names, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(names)) {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
			return err
		}
	}
	return nil
}

// inheritCPUs fills in what a new cgroup of the cpuset hierarchy has empty.
func inheritCPUs(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, os.ErrNotExist) {
			return nil // another hierarchy
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0); err != nil {
			return err
		}
	}
	return nil
}

// cgroups returns every cgroup of the bed, or of the node, of that path, children first: in the
// one hierarchy, or in each where there are several.
func cgroups(name string) []string {
	var dirs []string
	for _, pattern := range []string{name, "*/" + name} {
		tops, _ := filepath.Glob(filepath.Join(cgroupRoot, pattern)) // the pattern is good
		for _, top := range tops {
			filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil // one that has just gone is no error
			})
		}
	}
	slices.Reverse(dirs)
	return dirs
}

// removeCgroups removes the cgroups of the bed of that name.
func removeCgroups(name string) error {
	for deadline := time.Now().Add(cgroupGrace); ; time.Sleep(10 * time.Millisecond) {
		var failed error
		for _, dir := range cgroups(name) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				failed = &fs.PathError{Op: "rmdir", Path: dir, Err: err}
			}
		}
		if failed == nil || time.Now().After(deadline) {
			return failed
		}
	}
}

// thaw lets the frozen processes of the bed of that name run, without which
// they could not die.
func thaw(name string) {
	for _, dir := range cgroups(name) {
		// Only one of the two files exists, or neither.
		os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
		os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
	}
}
