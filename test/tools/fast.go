package tools

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/runsc/fast"
)

// RunscFast is the program [RunscFastProgram]: runsc with the encoder and the decoder of package runsc/fast.
const RunscFast Extra = "runsc-fast"

// RunscFastProgram is the name of the program of [RunscFast]. It gives the same version as runsc.
const RunscFastProgram = "runsc-fast"

// fastModule makes a copy of gVisor's source with our files in it below dir, which must be absolute. It returns the
// path of a go.mod for the module at root that takes gVisor from there.
func fastModule(ctx context.Context, root, dir string) (string, error) {
	source, err := goOutput(ctx, root, "list", "-m", "-f", "{{.Dir}}", gvisor)
	if err != nil {
		return "", err
	}
	tree := filepath.Join(dir, "gvisor")
	if err := fast.Tree(strings.TrimSpace(source), tree); err != nil {
		return "", err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("tools: %w", err)
		}
	}
	_, err = goOutput(ctx, dir, "mod", "edit", "-replace", gvisor+"="+tree)
	return filepath.Join(dir, "go.mod"), err
}

// buildFast builds runsc from the module of fastModule into out.
func buildFast(ctx context.Context, root, out, ldflags string) error {
	dir, err := os.MkdirTemp("", "runsc-fast-")
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	defer os.RemoveAll(dir)
	mod, err := fastModule(ctx, root, dir)
	if err != nil {
		return err
	}
	args := buildArgs(out, ldflags, gvisor+"/runsc")
	_, err = goOutput(ctx, root, append([]string{args[0], "-modfile=" + mod}, args[1:]...)...)
	return err
}
