package tools

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"diapause.dev/runsc/fast"
)

// RunscFast is the program that is runsc with the changes of package runsc/fast. It gives the same version as runsc.
const RunscFast = "runsc-fast"

// fastModule makes dir a module that takes gVisor from a copy of its source, with our files in it, and all else as the
// module at root does. Its files do not name dir: programs hold what they say.
func fastModule(ctx context.Context, root, dir string) error {
	source, err := goOutput(ctx, root, "list", "-m", "-f", "{{.Dir}}", gvisor)
	if err != nil {
		return err
	}
	// The program is made by the sources at root, which may be others than those of this one.
	tree := []string{"run", "./runsc/fast/tree", strings.TrimSpace(source), filepath.Join(dir, "gvisor")}
	if _, err := goOutput(ctx, root, tree...); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("tools: %w", err)
		}
	}
	_, err = goOutput(ctx, dir, "mod", "edit", "-replace", gvisor+"=./gvisor")
	return err
}

// buildFast builds the program [RunscFast], from the versions of modules that the module at root names, as the file
// out. env are more variables for the go command.
func buildFast(ctx context.Context, root, out, ldflags string, env []string) error {
	dir, err := os.MkdirTemp("", "runsc-fast-")
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := fastModule(ctx, root, dir); err != nil {
		return err
	}
	if err := precompile(ctx, dir, env); err != nil {
		return err
	}
	_, err = goOutputIn(ctx, dir, env, buildArgs(out, ldflags, gvisor+"/runsc")...)
	return err
}

// precompile has the system call filters written into the copy of gVisor's source in dir. The program for that is built
// like runsc, so that what both need is compiled once.
func precompile(ctx context.Context, dir string, env []string) error {
	program := filepath.Join(dir, "precompile")
	_, err := goOutputIn(ctx, dir, env, buildArgs(program, "", gvisor+"/"+fast.Precompile)...)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, program, filepath.Join(dir, "gvisor")).CombinedOutput(); err != nil {
		return fmt.Errorf("tools: precompile filters: %w: %s", err, out)
	}
	return nil
}
