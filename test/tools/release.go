package tools

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReleasePrograms returns the paths of the release's programs below their common directory.
func ReleasePrograms() []string {
	return []string{"containerd-shim-diapause-v1", "diapause", "diapause-agent", sidecar, "runsc", RunscFast}
}

// sidecar is where runsc looks for its checkpoint gofer, from its own directory.
const sidecar = "gvisor-bin/checkpointgofer"

// BuildRelease builds the release's programs from the sources at src into dir, see [ReleasePrograms].
// The programs give commit as their version. The same sources, commit and version of Go give the same bytes, wherever
// src is and whatever the environment says.
func BuildRelease(ctx context.Context, src, commit, dir string) error {
	flags, err := ldflags(ctx, src)
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil { // the go command runs in src
		return fmt.Errorf("tools: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(sidecar)), 0o755); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	flags += " " + releaseFlags(commit)
	env := []string{"GOFLAGS=-mod=readonly", "GOOS=linux", "GOAMD64=v1"}
	packages := []string{
		"./cmd/checkpointgofer", "./cmd/containerd-shim-diapause-v1", "./cmd/diapause", "./cmd/diapause-agent",
		gvisor + "/runsc",
	}
	if _, err := goOutputIn(ctx, src, env, buildArgs(dir+"/", flags, packages...)...); err != nil {
		return err
	}
	if err := buildFast(ctx, src, filepath.Join(dir, RunscFast), flags, env); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, filepath.Base(sidecar)), filepath.Join(dir, sidecar)); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	return readable(dir)
}

// releaseFlags are the linker flags of the programs of a release. The go command's own build id names a program by its
// sources, whether or not they change a byte of it.
func releaseFlags(commit string) string {
	return "-buildid= -X diapause.dev/cmd/internal/version.commit=" + commit
}

// BuildPlugin builds the plugin of kubectl for a platform from the sources at src, as BuildRelease does, and returns
// the path of the program in dir.
func BuildPlugin(ctx context.Context, src, commit, goos, goarch, dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, "kubectl-diapause"))
	if err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	env := []string{"GOFLAGS=-mod=readonly", "GOOS=" + goos, "GOARCH=" + goarch, "GOAMD64=v1"}
	args := buildArgs(path, "-s -w "+releaseFlags(commit), "./cmd/kubectl-diapause")
	_, err = goOutputIn(ctx, src, env, args...)
	return path, err
}

// readable gives everybody the right to run what is below dir, whatever the umask was.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("tools: %w", err)
		}
		return os.Chmod(path, 0o755)
	})
}
