package sleep

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
)

// Reminders is the directory with the reminders. Shims look there, whatever the agent's state directory is.
const Reminders = "/var/lib/diapause/asleep"

// ReminderFormat is the format of reminders that this program writes and reads.
const ReminderFormat = 1

// ErrNewer is the kind of error for a reminder that a newer agent has written.
var ErrNewer = errors.New("a newer agent has written it")

// maxReminder bounds a reminder, in bytes.
const maxReminder = 4 << 10

// Reminder says that a pod sleeps, and which snapshot it is woken from. Unlike a mark it survives a reboot of the
// node, after which the kubelet makes the pod's sandbox anew, and a wake that has failed. The agent writes and
// removes it (agent/asleep/reminders.go). If a wake fails, the pod's shim writes it, too: no agent may be running. The
// shim of the new sandbox reads it.
type Reminder struct {
	Format   int             `json:"format"`
	Pod      snapshot.PodRef `json:"pod"`
	Sandbox  string          `json:"sandbox"` // id of the sandbox container that the pod had
	Snapshot snapshot.Key    `json:"snapshot"`
	UID      string          `json:"uid"`  // of the snapshot
	Boot     string          `json:"boot"` // the boot of the node in which the pod fell asleep
	// Unwoken says that the sandbox that was to wake the pod ended before it ran. A pod that is made anew then goes on
	// where it was, also without a reboot.
	Unwoken bool `json:"unwoken,omitempty"`
}

// ReminderPath returns the path of the reminder of the pod with this UID. A UID may be any text.
func ReminderPath(dir, podUID string) string {
	return filepath.Join(dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(podUID))))
}

// Write makes r the reminder at path. When it returns nil, neither a killed process nor a power failure undoes that. If
// it is interrupted, the reminder is either the old one or r.
func (r Reminder) Write(path string) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = durable.Replace(path, data)
	}
	if err != nil {
		return fmt.Errorf("remember that pod %s sleeps: %w", r.Pod, err)
	}
	return nil
}

// RemoveReminder removes the reminder at path. When it returns nil, a power failure does not undo that.
func RemoveReminder(path string) error {
	if err := durable.Remove(path); err != nil {
		return fmt.Errorf("forget that a pod slept: %w", err)
	}
	return nil
}

// ReadReminder reads a reminder. If there is none, the error is of kind os.ErrNotExist; if it has a newer format, of
// kind ErrNewer.
func ReadReminder(path string) (r Reminder, err error) {
	f, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxReminder))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Format > ReminderFormat {
		err = fmt.Errorf("format %d: %w", r.Format, ErrNewer)
	}
	if err == nil {
		err = r.Snapshot.Validate()
	}
	if err != nil {
		return Reminder{}, fmt.Errorf("reminder %s: %w", path, err)
	}
	return r, nil
}

// Due reports whether the pod's next sandbox is to be restored: the node has been rebooted since the pod fell asleep,
// or the pod could not be woken.
func (r Reminder) Due() (bool, error) {
	boot, err := Boot()
	return err == nil && (r.Unwoken || r.Boot != boot), err
}

// bootFile is the file in which the kernel says which boot of the node this is.
const bootFile = "/proc/sys/kernel/random/boot_id"

// Boot returns what tells this boot of the node from every other.
func Boot() (string, error) {
	data, err := os.ReadFile(bootFile)
	boot := strings.TrimSpace(string(data))
	if err == nil && boot == "" {
		err = fmt.Errorf("%s is empty", bootFile)
	}
	if err != nil {
		return "", fmt.Errorf("this boot of the node: %w", err)
	}
	return boot, nil
}
