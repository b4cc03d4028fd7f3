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
	// maxFile bounds its size in bytes: 64 containers with names of 253 bytes each, and their settings.
	maxFile = 64 << 10
)

// Settings are the settings of a sandbox's terminals, by container name.
type Settings map[string]*snapshot.Terminal

// Write writes the settings to dir, readable by root only.
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

// Load returns the settings in dir, or nil if it has none.
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
