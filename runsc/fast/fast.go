package fast

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Precompile is the path of the program, below the root of a [Tree], that has to be run with that root as its argument
// before the tree can be built. It writes the system call filters.
const Precompile = "runsc/precompile"

// Tree makes dir, which must not exist, a copy of the gVisor module at source with the patches applied. Before it can
// be built, run the program [Precompile]. If a file that is touched is not as patches/UPSTREAM says, before the patches
// or after them, Tree fails, and names the file and its patches.
func Tree(source, dir string) error {
	patches, err := series()
	if err != nil {
		return err
	}
	expected, err := Expected()
	if err != nil {
		return err
	}
	if err := expected.checkListed(patches); err != nil {
		return err
	}
	if err := expected.checkBefore(source, patches); err != nil {
		return err
	}
	if err := CopyModule(source, dir); err != nil {
		return err
	}
	for _, p := range patches {
		if err := p.apply(dir); err != nil {
			return err
		}
	}
	return expected.checkAfter(dir, patches)
}

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
