// Package past keeps notes of pods that have run on this node. A snapshot restores a new pod. One that has run starts
// again as Kubernetes starts it, whatever has ended its sandbox. The notes survive a reboot.
//
// The agent writes a note when it decides about a sandbox. A pod's shim writes it, too: when it lets a sandbox start
// without an agent, and when a restore is complete.
package past

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
)

// Dir is the directory with the notes. Shims look there, whatever the agent's state directory is.
const Dir = "/var/lib/diapause/past"

// format is the format of notes that this program writes and reads.
const format = 1

const (
	// maxNote bounds a note, in bytes.
	maxNote = 8 << 10
	// maxTried bounds Note.Tried.
	maxTried = 16
)

// Note is what is known of a pod's past. A sandbox is named by the id of its sandbox container.
type Note struct {
	Format int             `json:"format"`
	Pod    snapshot.PodRef `json:"pod"`
	// Sandbox is the one that the pod ran in last: it was let start cold, or its restore was complete. Empty: the pod has
	// not run.
	Sandbox string `json:"sandbox,omitempty"`
	// Former is what Sandbox was before the restore of Sandbox was complete.
	Former string `json:"former,omitempty"`
	// Undone is a sandbox whose restore counts as failed, even if it was complete.
	Undone string `json:"undone,omitempty"`
	// Tried are the sandboxes that were to be restored since the pod last started cold, the newest last.
	Tried []string `json:"tried,omitempty"`
}

// Path returns the path of the note of the pod with this UID. A UID may be any text.
func Path(dir, podUID string) string {
	return filepath.Join(dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(podUID))))
}

// Start notes that a sandbox is let start cold.
func (n *Note) Start(sandbox string) { n.Sandbox, n.Former, n.Undone, n.Tried = sandbox, "", "", nil }

// Try notes that a sandbox is to be restored.
func (n *Note) Try(sandbox string) {
	if n.Sandbox == sandbox || n.Knows(sandbox) { // its shim may have let it start without an answer
		return
	}
	n.Tried = append(n.Tried, sandbox)
	n.Tried = n.Tried[max(len(n.Tried)-maxTried, 0):]
}

// Complete notes that the restore of a sandbox is complete, and reports whether that is news.
func (n *Note) Complete(sandbox string) bool {
	if n.Sandbox == sandbox || n.Undone == sandbox || !slices.Contains(n.Tried, sandbox) {
		return false
	}
	n.Sandbox, n.Former = sandbox, n.Sandbox
	return true
}

// Undo notes that a restore counts as failed, whether or not it was complete, and reports whether that is news. It
// stays so, even if Complete is called late.
func (n *Note) Undo(sandbox string) bool {
	if n.Undone == sandbox || !slices.Contains(n.Tried, sandbox) {
		return false
	}
	if n.Sandbox == sandbox {
		n.Sandbox, n.Former = n.Former, ""
	}
	n.Undone = sandbox
	return true
}

// Knows reports whether a sandbox is one of those that the note speaks of.
func (n *Note) Knows(sandbox string) bool {
	return sandbox == n.Sandbox || slices.Contains(n.Tried, sandbox)
}

// Write replaces the note of its pod in a directory, which must exist. If durably is set, a power failure does not undo
// that once Write has returned nil. If it is interrupted, the note is either the old one or n; after a power failure, a
// note that was not written durably may be unreadable.
func (n Note) Write(dir string, durably bool) error {
	n.Format = format
	data, err := json.Marshal(n)
	if err == nil {
		err = n.replace(dir, data, durably)
	}
	if err != nil {
		return fmt.Errorf("note what is known of the past of pod %s: %w", n.Pod, err)
	}
	return nil
}

func (n Note) replace(dir string, data []byte, durably bool) error {
	path := Path(dir, n.Pod.UID)
	if durably {
		return durable.Replace(path, data)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)) // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Read reads the note of the pod with this UID. If there is none, the error is of kind os.ErrNotExist.
func Read(dir, podUID string) (Note, error) { return ReadFile(Path(dir, podUID)) }

// ReadFile reads the note at path.
func ReadFile(path string) (n Note, err error) {
	f, err := os.Open(path)
	if err != nil {
		return n, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNote))
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err == nil && n.Format > format {
		err = fmt.Errorf("format %d: a newer program has written it", n.Format)
	}
	if err == nil && filepath.Base(path) != filepath.Base(Path("", n.Pod.UID)) {
		err = fmt.Errorf("it is that of pod %.80q", n.Pod.UID)
	}
	if err != nil {
		return Note{}, fmt.Errorf("note %s of a pod's past: %w", path, err)
	}
	return n, nil
}
