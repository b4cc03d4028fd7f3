package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"diapause.dev/api/snapshot"
)

const (
	// file is the name of the file in an image path.
	file = "terminals.json"
	// maxFile bounds its size in bytes: 64 containers of 253 bytes each, and their settings.
	maxFile = 64 << 10
)

// Settings are how the terminals of a sandbox are set, by the names of their containers.
type Settings map[string]*snapshot.Terminal

// Write puts the settings into dir, readable by root alone.
func (s Settings) Write(dir string) error {
	b, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write settings of terminals: %w", err)
	}
	return nil
}

// Load returns the settings in dir. A directory that has none holds no terminal.
func Load(dir string) (Settings, error) {
	f, err := os.Open(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("settings of terminals: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	var s Settings
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("settings of terminals %s: %w", f.Name(), err)
	}
	return s, nil
}
