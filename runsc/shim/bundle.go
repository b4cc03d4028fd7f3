package shim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"diapause.dev/runsc"
	settings "diapause.dev/runsc/terminal"
	"golang.org/x/sys/unix"
)

const (
	// orderFile is a file in the bundle of a sandbox container. It says that the sandbox is restored and not started.
	orderFile = "diapause-restore"
	// triedPrefix begins the names of files in that bundle. There is one file for each container of the pod whose start
	// was tried before the pod was restored.
	triedPrefix = "diapause-tried-"
	// startedPrefix likewise; one file for each container that was started in the restored sandbox.
	startedPrefix = "diapause-started-"
	// endedPrefix likewise; one file for each container that had ended in the snapshot, and has ended again.
	endedPrefix = "diapause-ended-"
	// loadedPrefix likewise; one file for each container that has all its files.
	loadedPrefix = "diapause-loaded-"
	// imageFile is a file in that bundle. It holds the image path by which the pod was woken last.
	imageFile = "diapause-image"
)

// order is the agent's order to restore a sandbox.
type order struct {
	Request    string   `json:"request"`
	ImagePath  string   `json:"imagePath"` // the request's directory
	Snapshot   string   `json:"snapshot"`
	Containers int      `json:"containers"`        // the pod is restored once this many have started
	Rootfs     bool     `json:"rootfs,omitempty"`  // only root file systems are restored: the containers start anew
	Ended      []string `json:"ended,omitempty"`   // names of containers that do not run again
	Volumes    []string `json:"volumes,omitempty"` // names of the volumes that were put in place on the node
	// ExitCodes are the exit codes of the ended containers, by name. The default is 0.
	ExitCodes map[string]int32 `json:"exitCodes,omitempty"`
	// Terminals are the settings of the containers' terminals, by container name.
	Terminals settings.Settings `json:"terminals,omitempty"`
}

// bundle is the bundle of a pod's sandbox container.
type bundle struct {
	id  string // of the sandbox container; empty: the container belongs to no pod
	dir string
}

// order records that the sandbox is to be restored.
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

// noteImage records the image path by which the pod is woken.
func (b bundle) noteImage(path string) error {
	if err := os.WriteFile(filepath.Join(b.dir, imageFile), []byte(path), 0o600); err != nil {
		return fmt.Errorf("note the wake of sandbox %s: %w", b.id, err)
	}
	return nil
}

// image returns the image path from which the sandbox has its memory, or "" if it has started anew.
func (b bundle) image() string {
	if b.id == "" {
		return ""
	}
	if path, err := os.ReadFile(filepath.Join(b.dir, imageFile)); err == nil {
		return string(path)
	}
	if o, ok := b.ordered(); ok && !o.Rootfs {
		return o.ImagePath
	}
	return ""
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
	_ = json.Unmarshal(data, &o) // the file's existence is what counts
	return o, true
}

// note records, once, that a container of the sandbox has reached a step. It returns how many containers have reached
// it, or 0 if this one was recorded already.
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

// fileName encodes a container's id or name for use in a file's name. A name comes from a snapshot, and may be
// anything.
func fileName(container string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(container))) }

// noted returns how many containers of the sandbox have reached a step.
func (b bundle) noted(prefix string) (int, error) {
	all, err := filepath.Glob(filepath.Join(b.dir, prefix+"*"))
	return len(all), err
}

// missing returns how many containers have yet to start before a sandbox that is restored as a whole is complete.
func (b bundle) missing() int {
	o, ok := b.ordered()
	if !ok || o.Rootfs {
		return 0
	}
	n, err := b.noted(startedPrefix)
	if err != nil {
		return o.Containers
	}
	return max(0, o.Containers-n)
}

// process returns the sandbox's process. If it never had one, the error is of kind os.ErrNotExist.
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

// kill sends SIGKILL to the sandbox's process. If the process is gone, that is no error.
func (b bundle) kill() error { return b.signal(unix.SIGKILL) }

// signal sends a signal to the sandbox's process. If the process is gone, that is no error.
func (b bundle) signal(sig unix.Signal) error {
	pid, err := b.process()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return runsc.SignalSandbox(pid, b.id, sig)
}

// haltPause is how often halt looks again.
const haltPause = 100 * time.Microsecond

// halt stops the sandbox's process, and returns once none of its threads runs: nothing is sent or answered any more.
// Signal it SIGCONT to have it go on, also if halt fails.
func (b bundle) halt(ctx context.Context) error {
	pid, err := b.process()
	if err != nil {
		return err
	}
	if err := runsc.SignalSandbox(pid, b.id, unix.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, err := allStopped(pid)
		if err != nil || stopped {
			return err
		}
		if !runsc.IsSandbox(pid, b.id) { // and so it got no signal
			return fmt.Errorf("stop process %d of sandbox %s: %w", pid, b.id, os.ErrProcessDone)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop process %d of sandbox %s: %w", pid, b.id, context.Cause(ctx))
		case <-time.After(haltPause):
		}
	}
}

// allStopped reports whether no thread of a process runs.
func allStopped(pid int) (bool, error) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(all) == 0 {
		return false, errors.Join(fmt.Errorf("process %d has no threads", pid), err)
	}
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return false, fmt.Errorf("state of a thread: %w", err)
		}
		_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" ")) // proc_pid_stat(5)
		if len(rest) == 0 || !strings.ContainsRune("TtZX", rune(rest[0])) {
			return false, nil
		}
	}
	return true, nil
}

// gone reports whether the sandbox never had a process, or no longer has one.
func (b bundle) gone() bool {
	pid, err := b.process()
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return !runsc.IsSandbox(pid, b.id)
}
