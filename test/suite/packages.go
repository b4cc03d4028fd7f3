package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"diapause.dev/test/tools"
)

// bedPackage is what tests import that need a bed.
const bedPackage = tools.Module + "/test/bed"

// pkg is a package of a module.
type pkg struct {
	path string // its import path
	name string // its path below the module diapause.dev, or below the directory of another module
	bed  bool   // its tests need a bed
}

// short is the name of the package with this import path.
func short(path string) string { return strings.TrimPrefix(path, tools.Module+"/") }

// packages lists the packages of the module in a directory.
func packages(ctx context.Context, dir string) (out []pkg, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,TestImports,XTestImports", "./...")
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "GOWORK=off"), os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", dir, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p struct {
			ImportPath                string
			TestImports, XTestImports []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", dir, err)
		}
		imports := append(p.TestImports, p.XTestImports...)
		out = append(out, pkg{p.ImportPath, short(p.ImportPath), slices.Contains(imports, bedPackage)})
	}
}

// picked returns the import paths of a phase's packages, and whether one of them needs a bed. It is an error if there
// are none.
func (s *suite) picked(ctx context.Context, p phase) (paths []string, bed bool, err error) {
	list, err := packages(ctx, filepath.Join(s.root, p.dir))
	if err != nil {
		return nil, false, err
	}
	for _, pk := range list {
		if p.pick(pk) {
			paths, bed = append(paths, pk.path), bed || pk.bed
		}
	}
	if len(paths) == 0 {
		return nil, false, fmt.Errorf("phase %s: no package is left to run", p.name)
	}
	return paths, bed, nil
}
