package kubelet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// last is the process that was found last. Running checks it first.
var last atomic.Int64

// Running reports whether a kubelet runs on this node, and its process id. It finds only processes that the
// caller's /proc shows. A kubelet removes pods that it did not make.
func Running() (pid int, ok bool, err error) {
	if pid = int(last.Load()); pid != 0 && hasName("/proc", strconv.Itoa(pid), "kubelet") {
		return pid, true, nil
	}
	pid, ok, err = processNamed("/proc", "kubelet")
	last.Store(int64(pid))
	return pid, ok, err
}

// processNamed finds a process in a proc file system by the name that the kernel keeps of it.
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
		if hasName(proc, e.Name(), name) {
			return pid, true, nil
		}
	}
	return 0, false, nil
}

// hasName reports whether a process has a name.
func hasName(proc, pid, name string) bool {
	comm, err := os.ReadFile(filepath.Join(proc, pid, "comm"))
	return err == nil && string(bytes.TrimSpace(comm)) == name
}
