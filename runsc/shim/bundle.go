package shim

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	settings "diapause.dev/runsc/terminal"
	"golang.org/x/sys/unix"
)

const (
	// orderFile is the file in the bundle of a sandbox container that says that the sandbox is
	// restored rather than started. The shims of the pod's other containers read it: containerd
	// keeps all bundles of a namespace in one directory.
	orderFile = "diapause-restore"
	// triedPrefix begins the names of files in that bundle, one for each container of the pod whose start was tried
	// before the pod was restored.
	triedPrefix = "diapause-tried-"
	// startedPrefix begins the names of those of containers that were started in the sandbox that is restored.
	startedPrefix = "diapause-started-"
	// endedPrefix begins the names of those of containers that had ended in the snapshot, and have again.
	endedPrefix = "diapause-ended-"
	// loadedPrefix begins the names of those of containers that have all their files.
	loadedPrefix = "diapause-loaded-"
)

// order is the agent's word that a sandbox is restored.
type order struct {
	Request    string   `json:"request"`
	ImagePath  string   `json:"imagePath"` // the request's directory
	Snapshot   string   `json:"snapshot"`
	Containers int      `json:"containers"`        // with the start of so many the pod is restored
	Rootfs     bool     `json:"rootfs,omitempty"`  // only root file systems are restored: the containers start anew
	Ended      []string `json:"ended,omitempty"`   // names of containers that are not run again
	Volumes    []string `json:"volumes,omitempty"` // names of those that were put in place on the node
	// ExitCodes are how those ended, by name; 0 unless it is said.
	ExitCodes map[string]int32 `json:"exitCodes,omitempty"`
	// Terminals are how those of the containers were set, by the containers' names.
	Terminals settings.Settings `json:"terminals,omitempty"`
}

// bundle is the bundle of a pod's sandbox container, as the shim of any of the pod's containers
// sees it.
type bundle struct {
	id  string // of the sandbox container; empty: the container is of no pod
	dir string
}

// order notes that the sandbox is to be restored.
func (b bundle) order(o order) error {
	data, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, orderFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note the restore of sandbox %s: %w", b.id, err)
	}
	return nil
}

// ordered returns the order by which the sandbox is or was restored.
func (b bundle) ordered() (o order, ok bool) {
	if b.id == "" {
		return order{}, false
	}
	data, err := os.ReadFile(filepath.Join(b.dir, orderFile))
	if err != nil {
		return order{}, false
	}
	_ = json.Unmarshal(data, &o) // that there is an order is what counts
	return o, true
}

// note notes that a container of the sandbox has come so far, once, and returns how many have;
// 0 if this one had already.
func (b bundle) note(prefix, container string) (int, error) {
	f, err := os.OpenFile(filepath.Join(b.dir, prefix+fileName(container)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return 0, nil
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return 0, fmt.Errorf("note how far container %s is: %w", container, err)
	}
	return b.noted(prefix)
}

// fileName returns a name that stands for a container's id or name in the name of a file: a name comes from
// a snapshot, and may be anything.
func fileName(container string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(container))) }

// noted returns how many containers of the sandbox have come so far.
func (b bundle) noted(prefix string) (int, error) {
	all, err := filepath.Glob(filepath.Join(b.dir, prefix+"*"))
	return len(all), err
}

// process returns the process of the sandbox, an error of kind os.ErrNotExist if it never had one.
func (b bundle) process() (int, error) {
	data, err := os.ReadFile(filepath.Join(b.dir, "init.pid"))
	if err != nil {
		return 0, fmt.Errorf("process of sandbox %s: %w", b.id, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("process of sandbox %s: %s holds %.20q", b.id, "init.pid", data)
	}
	return pid, nil
}

// kill sends SIGKILL to the process of the sandbox. One that is gone is no error.
func (b bundle) kill() error {
	pid, err := b.process()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return killSandbox(pid, b.id)
}

// gone reports whether the sandbox has no process, or not any more.
func (b bundle) gone() bool {
	pid, err := b.process()
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return !isSandbox(pid, b.id)
}

// isSandbox reports whether the command line of process pid names the sandbox.
func isSandbox(pid int, id string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && slices.Contains(strings.Split(string(cmdline), "\x00"), id)
}

// killSandbox sends SIGKILL to process pid if its command line names the sandbox. The process is
// held by a descriptor meanwhile, so that no other of the same number is hit.
func killSandbox(pid int, id string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !isSandbox(pid, id) {
		return nil // exited, or another process by now
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
