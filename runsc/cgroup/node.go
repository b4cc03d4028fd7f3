package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Available returns how much memory the node can give without swapping, in bytes, as the kernel estimates it.
func Available() (int64, error) { return kilobytes("/proc/meminfo", "MemAvailable:") }

// Anonymous returns how much memory process pid has of its own, in bytes. Mapped files and shared memory do not
// count.
func Anonymous(pid int) (int64, error) {
	return kilobytes(fmt.Sprintf("/proc/%d/status", pid), "RssAnon:")
}

// kilobytes returns the value, in bytes, of the line of a file that begins with name.
func kilobytes(path, name string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != name {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		return n << 10, err
	}
	return 0, fmt.Errorf("%s has no line %s", path, name)
}
