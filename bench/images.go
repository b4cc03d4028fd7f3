package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"diapause.dev/bench/programs"
)

// makeImages makes the images of programs, with the network of the machine, below .cache.
func makeImages(ctx context.Context, list []*programs.Program) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the directory of the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	cache := filepath.Join(root, ".cache", "images")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	inside, err := buildInside(ctx, root, cache)
	if err != nil {
		return err
	}
	for _, p := range list {
		image := p.Image
		if image.Files == nil {
			image.Files = map[string][]byte{}
		}
		image.Files[programs.Inside] = inside
		archive, err := image.Archive(ctx, cache)
		if err != nil {
			return fmt.Errorf("image of %s: %w", p.Name, err)
		}
		link := imageLink(root, p)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(filepath.Base(archive), link); err != nil {
			return err
		}
	}
	return nil
}

// buildInside builds the program that is in all images.
func buildInside(ctx context.Context, root, cache string) ([]byte, error) {
	path := filepath.Join(cache, "inside")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path,
		"./bench/programs/inside")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build what is inside the images: %w\n%s", err, out)
	}
	return os.ReadFile(path)
}
