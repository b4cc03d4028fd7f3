package runsc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryName is how the sentry names its main memory file (runsc/boot/loader.go,
// createMemoryFile).
const memoryName = "/memfd:runsc-memory"

// Executable returns a path to the runsc binary that the sandbox whose sentry is process pid runs, which
// may have been replaced on disk since.
func Executable(pid int) string { return fmt.Sprintf("/proc/%d/exe", pid) }

// MemoryFile returns the path under which the main memory file of the sandbox whose sentry is
// process pid can be opened.
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

// MemoryUsage returns how many bytes are allocated in the main memory file of the sandbox whose
// sentry is process pid.
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
