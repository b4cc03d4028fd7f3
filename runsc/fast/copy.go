package fast

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CopyModule copies a module, whose files may be read-only, to dir, which must not exist.
func CopyModule(source, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("copy gVisor: %w", err)
	}
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("copy gVisor: %w", err)
		}
		rel, err := filepath.Rel(source, path)
		if err != nil || d.IsDir() {
			return err
		}
		return copyFile(path, filepath.Join(dir, rel))
	})
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy gVisor: %w", err)
	}
	return writeFile(to, data)
}

// writeFile writes a file of a tree, and makes its directory.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write gVisor's tree: %w", err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write gVisor's tree: %w", err)
	}
	return nil
}
