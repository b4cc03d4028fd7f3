package sleep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// markFile is a file in the image path of the restore that wakes a pod. It exists while the pod sleeps. The shim of the
// pod's sandbox writes and removes it, the agent reads it.
const markFile = "asleep.json"

// maxMark bounds a mark, in bytes.
const maxMark = 4 << 10

// Mark says that a pod sleeps.
type Mark struct {
	Sandbox string    `json:"sandbox"` // id of its sandbox container
	UID     string    `json:"uid"`     // of the pod
	Since   time.Time `json:"since"`
	Ready   bool      `json:"-"` // it has a sandbox for its wake, see MarkReady
}

// Write writes the mark to an image path.
func (m Mark) Write(imagePath string) error {
	data, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(filepath.Join(imagePath, markFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("mark that pod sandbox %s sleeps: %w", m.Sandbox, err)
	}
	return nil
}

// Unmark removes the mark from an image path. If there is none, that is no error.
func Unmark(imagePath string) error {
	if err := os.Remove(filepath.Join(imagePath, markFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mark that a pod is awake: %w", err)
	}
	return nil
}

// Marked reads the mark in an image path. ok is false if there is none, or if it cannot be read.
func Marked(imagePath string) (m Mark, ok bool) {
	f, err := os.Open(filepath.Join(imagePath, markFile))
	if err != nil {
		return m, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMark))
	_, unready := os.Lstat(filepath.Join(imagePath, readyFile))
	m.Ready = unready == nil
	return m, err == nil && json.Unmarshal(data, &m) == nil
}

// wakingFile is a file beside the mark. It says that the pod's wake has begun. The shim writes it before a sandbox gets
// anything of the memory, the agent reads it; it goes with the image path.
const wakingFile = "waking"

// MarkWaking notes in an image path that the pod's wake begins.
func MarkWaking(imagePath string) error {
	if err := os.WriteFile(filepath.Join(imagePath, wakingFile), nil, 0o600); err != nil {
		return fmt.Errorf("mark that a pod's wake begins: %w", err)
	}
	return nil
}

// Waking reports whether the wake of the pod that sleeps has begun. If that cannot be found out, it has.
func Waking(imagePath string) bool {
	_, err := os.Lstat(filepath.Join(imagePath, wakingFile))
	return !errors.Is(err, os.ErrNotExist)
}

// readyFile is a file beside the mark. It exists while the pod has a sandbox that was created for its wake. The shim
// writes and removes it, the agent reads it.
const readyFile = "ready"

// MarkReady notes in an image path that the pod has a sandbox for its wake.
func MarkReady(imagePath string) error {
	if err := os.WriteFile(filepath.Join(imagePath, readyFile), nil, 0o600); err != nil {
		return fmt.Errorf("mark that a pod is ready to wake: %w", err)
	}
	return nil
}

// UnmarkReady undoes MarkReady. If there is nothing to undo, that is no error.
func UnmarkReady(imagePath string) error {
	if err := os.Remove(filepath.Join(imagePath, readyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mark that a pod is not ready to wake: %w", err)
	}
	return nil
}
