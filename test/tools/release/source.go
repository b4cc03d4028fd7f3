package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// source is what a release is built from.
type source struct {
	dir    string    // a copy of the sources
	commit string    // their commit, in full
	time   time.Time // when the commit was made
}

// checkout copies the sources of a revision from the repository at repo to dir.
func checkout(ctx context.Context, repo, revision, dir string) (source, error) {
	out, err := command(ctx, repo, "git", "log", "--max-count=1", "--format=%H %cI", revision, "--")
	if err != nil {
		return source{}, err
	}
	commit, date, _ := strings.Cut(strings.TrimSpace(out), " ")
	made, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return source{}, fmt.Errorf("date of the commit %s: %w", commit, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return source{}, err
	}
	root, err := command(ctx, repo, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return source{}, err
	}
	archive := filepath.Join(filepath.Dir(dir), "src.tar")
	if _, err := command(ctx, strings.TrimSpace(root), "git", "archive", "--output="+archive, commit); err != nil {
		return source{}, err
	}
	_, err = command(ctx, dir, "tar", "--extract", "--file="+archive)
	return source{dir: dir, commit: commit, time: made.UTC()}, err
}

// command runs a program in dir and returns what it prints.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// pinToolchain makes every go command of this process use the version of Go that the go.mod in dir names. The go
// command fetches that version like a module, and checks it likewise, if the machine has another.
func pinToolchain(dir string) error {
	name := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	file, err := modfile.Parse(name, data, nil)
	if err != nil {
		return err
	}
	if file.Toolchain == nil {
		return fmt.Errorf("%s: name the version of Go for releases by a toolchain line", name)
	}
	return os.Setenv("GOTOOLCHAIN", file.Toolchain.Name)
}
