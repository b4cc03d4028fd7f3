package tools

import (
	"context"
	"crypto/sha256"
	_ "embed"
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

// fastRecipe is this file: it says how the program is built.
//
//go:embed fast.go
var fastRecipe string

// fastDigest identifies what the program has that runsc has not: it is one of all sources at root that change those of
// gVisor.
func fastDigest(ctx context.Context, root string) (string, error) {
	// Of other modules, go.sum has the digests. Where their files are says nothing.
	const files = "{{range .GoFiles}}{{$.Dir}}/{{.}}\n{{end}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}\n{{end}}"
	const other = "{{.Module.Path}}@{{.Module.Version}}\n"
	list, err := goOutputIn(ctx, root, groupEnv, "list", "-deps", "-f",
		"{{if .Standard}}{{else if .Module.Main}}"+files+"{{else}}"+other+"{{end}}", "./runsc/fast/tree")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", fastRecipe)
	for file := range strings.Lines(list) {
		file = strings.TrimSuffix(file, "\n")
		if !filepath.IsAbs(file) { // another module, or nothing between two packages
			fmt.Fprintf(sum, "%q\n", file)
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("tools: %w", err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return "", fmt.Errorf("tools: %w", err)
		}
		fmt.Fprintf(sum, "%q %x\n", name, sha256.Sum256(data))
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
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
