package sidecar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// OptionsFile is the name of the file that makes runsc start a checkpoint gofer instead of opening image files
// itself (runsc/sandbox/sandbox.go, checkpointGCSOptsFileName).
const OptionsFile = "gcs_opts.json"

// maxOptions bounds the size of OptionsFile in bytes.
const maxOptions = 16 << 10

// optionsFormat is the value of Options.Diapause. A sidecar sends its options first, so this is the format of all its
// packets: an agent hangs up on a sidecar with another one.
const optionsFormat = 1

// Direction says what a request is for.
type Direction string

// The directions. In Workload, a process of the sandbox begins the checkpoint, whenever it wants. Those with
// Rootfs in their name save or restore files alone.
const (
	Checkpoint       Direction = "checkpoint"
	Restore          Direction = "restore"
	Workload         Direction = "workload"
	RootfsCheckpoint Direction = "rootfs-checkpoint"
	RootfsRestore    Direction = "rootfs-restore"
	RootfsWorkload   Direction = "rootfs-workload"
)

// Restores reports whether the sandbox reads its image.
func (d Direction) Restores() bool { return d == Restore || d == RootfsRestore }

// OfWorkload reports whether a process of the sandbox begins the save.
func (d Direction) OfWorkload() bool { return d == Workload || d == RootfsWorkload }

func (d Direction) known() bool {
	switch d {
	case Checkpoint, Restore, Workload, RootfsCheckpoint, RootfsRestore, RootfsWorkload:
		return true
	}
	return false
}

// Options is the content of OptionsFile: what a sidecar needs to reach the agent.
type Options struct {
	Diapause  int       `json:"diapause"`  // format of this file
	Socket    string    `json:"socket"`    // the agent's sidecar socket
	Request   string    `json:"request"`   // id of the request
	Token     string    `json:"token"`     // secret: proves that this sidecar belongs to the request
	Direction Direction `json:"direction"` // what the request is for

	// KeepCPULimit tells the shim to leave the pod's limit of processor time as it is.
	KeepCPULimit bool `json:"keepCpuLimit,omitempty"`

	// ReadBytes is the size of the largest read of a memory file in a restore, in bytes; 0: MaxRead. The sentry cannot
	// ask for what it waits for while all its reads are under way. So reads are smaller where they take long.
	ReadBytes uint64 `json:"readBytes,omitempty"`
}

// leastRead is the size of the smallest limit for reads, in bytes.
const leastRead = 64 << 10

// readBytes returns the limit for a read of a memory file.
func (o Options) readBytes() uint64 {
	if o.ReadBytes == 0 {
		return MaxRead
	}
	return max(leastRead, min(o.ReadBytes, MaxRead))
}

// ErrNotOurs means that an OptionsFile was not written by an agent.
var ErrNotOurs = errors.New(OptionsFile + " was not written by a Diapause agent: " +
	"this runsc saves and restores through Diapause only (use an image path without " + OptionsFile + ")")

// Write writes the options to dir, readable by root only.
func (o Options) Write(dir string) error {
	o.Diapause = optionsFormat
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, OptionsFile), b, 0o600); err != nil {
		return fmt.Errorf("write sidecar options: %w", err)
	}
	return nil
}

// ReadOptions reads and checks options. If no agent wrote them, the error is ErrNotOurs.
func ReadOptions(r io.Reader) (Options, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxOptions+1))
	if err != nil {
		return Options{}, fmt.Errorf("read sidecar options: %w", err)
	}
	return parseOptions(b)
}

func parseOptions(b []byte) (Options, error) {
	var o Options
	if len(b) > maxOptions || json.NewDecoder(bytes.NewReader(b)).Decode(&o) != nil || o.Diapause == 0 {
		return Options{}, ErrNotOurs
	}
	if o.Diapause != optionsFormat {
		return Options{}, fmt.Errorf("%s has format %d, this sidecar knows %d: install the agent's own sidecar", OptionsFile,
			o.Diapause, optionsFormat)
	}
	if !o.Direction.known() {
		return Options{}, fmt.Errorf("%s: unknown direction %q", OptionsFile, o.Direction)
	}
	if !filepath.IsAbs(o.Socket) || o.Request == "" || o.Token == "" {
		return Options{}, fmt.Errorf("%s: socket, request and token must be set", OptionsFile)
	}
	return o, nil
}
