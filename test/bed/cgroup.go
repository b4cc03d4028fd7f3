package bed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroupGrace is how long the kernel may take to let go of the cgroup of a
// process that is dead.
const cgroupGrace = 10 * time.Second

// cgroups returns every cgroup of the bed of that name, children first: in the
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
