package cri

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// KubeletRunning reports whether a kubelet runs on this node, as far as the caller's /proc shows
// its processes, and its process id. A kubelet removes pods that it did not make.
func KubeletRunning() (pid int, ok bool, err error) { return processNamed("/proc", "kubelet") }

// processNamed looks in a proc file system for a process by the name the kernel keeps of it.
func processNamed(proc, name string) (pid int, ok bool, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return 0, false, fmt.Errorf("look for a process named %s: %w", name, err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		if err == nil && string(bytes.TrimSpace(comm)) == name {
			return pid, true, nil
		}
	}
	return 0, false, nil
}
