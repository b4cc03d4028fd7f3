package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	settings "diapause.dev/runsc/terminal"
	task "github.com/containerd/containerd/api/runtime/task/v2"
)

// terminalPrefix begins the names of files in a sandbox container's bundle. They name the terminals of the pod's
// containers on the node, for the shim that saves the sandbox.
const terminalPrefix = "diapause-terminal-"

// namedTerminal is what such a file holds.
type namedTerminal struct {
	Container string `json:"container"` // its name in the pod
	Terminal  string `json:"terminal"`  // name of the container's end of the terminal
}

// createStreams creates a container, and provides its standard streams or its terminal.
func (c *containers) createStreams(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	p, err := readPod(r.Bundle)
	if err != nil {
		return nil, err
	}
	c.roster.add(r.ID, p.container)
	x, err := c.bundle.terminal(p.container)
	if err == nil && x.restored && r.Terminal {
		err = withoutTerminal(r.Bundle)
	}
	if err != nil {
		c.roster.forget(r.ID)
		return nil, err
	}
	x.plain = !r.Terminal
	c.process.terminals.expect(r.ID, x)
	created, err := c.TaskServiceExt.Create(ctx, r)
	if err != nil {
		c.process.terminals.forget(r.ID)
		c.roster.forget(r.ID)
		return nil, err
	}
	if x.plain {
		return created, nil
	}
	if err := c.bundle.noteTerminal(r.ID, namedTerminal{p.container, x.name}); err != nil {
		slog.Warn("a snapshot will not hold how the container's terminal is set", "container", r.ID, "error", err)
	}
	return created, nil
}

// terminal returns the terminal that the container with that name is to have. The shim makes it if the start of the
// container is a part of the sandbox's restore. A container that is started again later gets its terminal from runsc.
func (b bundle) terminal(container string) (*terminal, error) {
	o, ok := b.ordered()
	if !ok || o.Rootfs {
		return &terminal{}, nil
	}
	n, err := b.noted(startedPrefix)
	if err != nil {
		return nil, err
	}
	return &terminal{restored: n < o.Containers, set: o.Terminals[container]}, nil
}

// forgetTerminal removes the record of a deleted container's terminal.
func (b bundle) forgetTerminal(id string) {
	err := os.Remove(filepath.Join(b.dir, terminalPrefix+id))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		slog.Warn("the container's terminal is still noted", "container", id, "error", err)
	}
}

// noteTerminal records the name of a container's terminal.
func (b bundle) noteTerminal(id string, t namedTerminal) error {
	data, err := json.Marshal(t)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, terminalPrefix+id), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note the terminal of container %s: %w", id, err)
	}
	return nil
}

// terminals returns the settings of the sandbox's terminals, by container name. The error says which could not be
// read.
func (b bundle) terminals() (settings.Settings, error) {
	files, err := filepath.Glob(filepath.Join(b.dir, terminalPrefix+"*"))
	if err != nil {
		return nil, err
	}
	all := make(settings.Settings)
	var errs []error
	for _, f := range files {
		var t namedTerminal
		data, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(data, &t)
		}
		if err == nil {
			all[t.Container], err = settings.Read(t.Terminal)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// noteTerminals writes the settings of the sandbox's terminals to a file in the image path, for the agent. Without
// it, restored terminals have the settings of new ones.
func (b bundle) noteTerminals(imagePath string) {
	all, err := b.terminals()
	if len(all) > 0 {
		err = errors.Join(err, all.Write(imagePath))
	}
	if err != nil {
		slog.Warn("the snapshot does not hold how all terminals are set", "sandbox", b.id, "error", err)
	}
}

// terminalsOf returns the settings that the agent wants for the terminals.
func terminalsOf(r *localv1.AskRestoreResponse) settings.Settings {
	all := make(settings.Settings)
	for name, t := range r.GetTerminals() {
		all[name] = &snapshot.Terminal{
			Input: t.GetIflag(), Output: t.GetOflag(), Control: t.GetCflag(), Local: t.GetLflag(), Characters: t.GetCc(),
			Rows: uint16(t.GetRows()), Columns: uint16(t.GetColumns()),
		}
	}
	return all
}
