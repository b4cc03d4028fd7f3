package shim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// orderFile is the file in the bundle of a sandbox container that says that the sandbox is
// restored rather than started, and for which request. The shims of the pod's other containers
// read it: containerd keeps all bundles of a namespace in one directory.
const orderFile = "diapause-restore"

// bundle is the bundle of a pod's sandbox container, as the shim of any of the pod's containers
// sees it.
type bundle struct {
	id  string // of the sandbox container; empty: the container is of no pod
	dir string
}

// order notes that the sandbox is to be restored for a request.
func (b bundle) order(request string) error {
	if err := os.WriteFile(filepath.Join(b.dir, orderFile), []byte(request), 0o600); err != nil {
		return fmt.Errorf("note the restore of sandbox %s: %w", b.id, err)
	}
	return nil
}

// ordered returns the request for which the sandbox is or was restored.
func (b bundle) ordered() (request string, ok bool) {
	if b.id == "" {
		return "", false
	}
	data, err := os.ReadFile(filepath.Join(b.dir, orderFile))
	return string(data), err == nil
}

// kill sends SIGKILL to the process of the sandbox. One that is gone is no error.
func (b bundle) kill() error {
	data, err := os.ReadFile(filepath.Join(b.dir, "init.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process of sandbox %s: %w", b.id, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 0 {
		return fmt.Errorf("process of sandbox %s: %s holds %.20q", b.id, "init.pid", data)
	}
	return killSandbox(pid, b.id)
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
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !slices.ContainsFunc(bytes.Split(cmdline, []byte{0}), func(arg []byte) bool { return string(arg) == id }) {
		return nil // exited, or another process by now
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
