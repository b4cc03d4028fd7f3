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
	ok = err == nil && json.Unmarshal(data, &m) == nil
	return m, ok
}

// heldFile is a file beside the mark. As long as it exists, the agent gives no sandbox anything of the pod's memory.
// The shim writes it before it has the pod's kernel loaded beforehand, and removes it when the pod's wake begins.
const heldFile = "held"

// HoldMemory has the agent give out no memory by an image path.
func HoldMemory(imagePath string) error {
	if err := os.WriteFile(filepath.Join(imagePath, heldFile), nil, 0o600); err != nil {
		return fmt.Errorf("mark that a pod's memory is held: %w", err)
	}
	return nil
}

// ReleaseMemory undoes HoldMemory: the pod wakes. If there is nothing to undo, that is no error.
func ReleaseMemory(imagePath string) error {
	if err := os.Remove(filepath.Join(imagePath, heldFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mark that a pod's wake begins: %w", err)
	}
	return nil
}

// MemoryHeld reports whether memory is held, see HoldMemory.
func MemoryHeld(imagePath string) bool {
	_, err := os.Lstat(filepath.Join(imagePath, heldFile))
	return err == nil
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
