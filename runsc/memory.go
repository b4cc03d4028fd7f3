package runsc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// MemoryFile returns the sandbox's main memory file, open for reading. The caller must close it. Pid is its sentry
// process.
func MemoryFile(pid int) (*os.File, error) {
	files, err := filesOf(pid, func(target string) bool { return strings.HasPrefix(target, memoryName) })
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		if inMemory(int(f.Fd())) {
			closeAll(files[i+1:])
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("process %d has no memory file: is it a gVisor sandbox?", pid)
}

// fileStore is how runsc names the file that holds what a container has written to its root file system.
const fileStore = "/" + fsutil.SelfFilestorePrefix

// PageFiles returns all files in which a sandbox keeps the pages of a snapshot, open for reading: its main memory file,
// and one for each root file system that is kept on disk. The caller must close them. Pid is its sentry process.
func PageFiles(pid int) ([]*os.File, error) {
	return filesOf(pid, func(target string) bool {
		return strings.HasPrefix(target, memoryName) || strings.Contains(target, fileStore)
	})
}

// filesOf returns the memory files that a sentry has open under names that match, each once, open for reading. The
// sentry may be hostile, so a name proves nothing: what is no memory file is left out.
func filesOf(pid int, match func(target string) bool) (files []*os.File, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("files of sandbox process %d: %w", pid, err)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open sandbox process %d: %w", pid, err)
	}
	defer unix.Close(process)
	seen := make(map[string]bool)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		number, badName := strconv.Atoi(e.Name())
		if err != nil || badName != nil || seen[target] || !match(target) {
			continue
		}
		f, err := borrow(process, number)
		if errors.Is(err, unix.EBADF) || errors.Is(err, ErrMemoryFile) {
			continue // closed meanwhile, or not what its name says
		}
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("file %d of sandbox process %d: %w", number, pid, err)
		}
		seen[target] = true
		files = append(files, f)
	}
	return files, nil
}

// borrow opens a memory file of a process. It looks at the process's own descriptor first: to open a file by its path
// might block.
func borrow(process, number int) (*os.File, error) {
	fd, err := unix.PidfdGetfd(process, number, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if _, err := CheckMemoryFile(fd); err != nil {
		return nil, err
	}
	own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return own, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// FileStoreUsage returns how many bytes of disk a sandbox's root file systems occupy. Those kept in memory do not
// count. Pid is the sandbox's sentry process.
func FileStoreUsage(pid int) (n int64, err error) {
	files, err := PageFiles(pid)
	if err != nil {
		return 0, err
	}
	defer closeAll(files)
	for _, f := range files {
		if inMemory(int(f.Fd())) {
			continue
		}
		allocated, err := allocated(f)
		if err != nil {
			return 0, fmt.Errorf("disk usage of sandbox process %d: %w", pid, err)
		}
		n += allocated
	}
	return n, nil
}

// MemoryUsage returns how many bytes are allocated in a sandbox's main memory file. Pid is its sentry process.
func MemoryUsage(pid int) (int64, error) {
	f, err := MemoryFile(pid)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := allocated(f)
	if err != nil {
		return 0, fmt.Errorf("memory usage of sandbox process %d: %w", pid, err)
	}
	return n, nil
}

// allocated returns how many bytes of a file are allocated.
func allocated(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}
