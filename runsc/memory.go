package runsc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fsutil"
)

// memoryName is how the sentry names its main memory file (runsc/boot/loader.go,
// createMemoryFile).
const memoryName = "/memfd:runsc-memory"

// Executable returns a path to the runsc binary of the sandbox with sentry process pid. It is the binary that the
// sandbox runs, even if the file on disk has been replaced since.
func Executable(pid int) string { return fmt.Sprintf("/proc/%d/exe", pid) }

// MemoryFile returns a path at which the sandbox's main memory file can be opened. Pid is its sentry process.
func MemoryFile(pid int) (string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("memory file of sandbox process %d: %w", pid, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, memoryName) {
			return path, nil
		}
	}
	return "", fmt.Errorf("process %d has no memory file: is it a gVisor sandbox?", pid)
}

// fileStore is how runsc names the file that holds what a container has written to its root file system.
const fileStore = "/" + fsutil.SelfFilestorePrefix

// PageFiles returns the paths of all files in which a sandbox keeps the pages of a snapshot: its main memory
// file, and one for each root file system that is kept on disk. Pid is its sentry process.
func PageFiles(pid int) (paths []string, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("files of sandbox process %d: %w", pid, err)
	}
	seen := make(map[string]bool)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err == nil && !seen[target] && (strings.HasPrefix(target, memoryName) || strings.Contains(target, fileStore)) {
			seen[target] = true
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// FileStoreUsage returns how many bytes of disk a sandbox's root file systems occupy. Those kept in memory do not
// count. Pid is the sandbox's sentry process.
func FileStoreUsage(pid int) (n int64, err error) {
	paths, err := PageFiles(pid)
	for _, path := range paths {
		target, err := os.Readlink(path)
		if err != nil || !strings.Contains(target, fileStore) {
			continue // the main memory file, or closed meanwhile
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return 0, fmt.Errorf("disk usage of sandbox process %d: %w", pid, err)
		}
		n += st.Blocks * 512
	}
	return n, err
}

// MemoryUsage returns how many bytes are allocated in a sandbox's main memory file. Pid is its sentry process.
func MemoryUsage(pid int) (int64, error) {
	path, err := MemoryFile(pid)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("memory usage of sandbox process %d: %w", pid, err)
	}
	return st.Blocks * 512, nil
}
