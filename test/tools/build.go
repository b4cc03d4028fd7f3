package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the path of the module whose programs Build builds.
const Module = "diapause.dev"

const gvisor = "gvisor.dev/gvisor"

// Bin is a directory of built programs. It holds runsc and [RunscFast] with our
// gvisor-bin/checkpointgofer beside them, containerd and its companions,
// fake-gcs-server, every command of this module by its name, and under image/
// the programs that go into the test images.
type Bin struct {
	// Root is the directory of this module.
	Root string
	// Dir is the directory of the programs. Build changes its contents; who
	// needs them to stay as they are takes a copy by [Bin.Link].
	Dir string
}

// Path returns the path of the named program.
func (b Bin) Path(name string) string { return filepath.Join(b.Dir, name) }

// Prebuilt is the environment variable that names a directory of programs to use
// as it is. Build then builds nothing.
const Prebuilt = "DIAPAUSE_TOOLS"

// Build builds what is not built yet, and returns where all of it is. Extras are
// built only if they are named. It prints a line on standard error for each build that takes long. It fails when a
// package does not compile or a module cannot be had.
func Build(ctx context.Context, extras ...Extra) (Bin, error) {
	root, err := moduleRoot()
	if err != nil {
		return Bin{}, err
	}
	if dir := os.Getenv(Prebuilt); dir != "" {
		return Bin{Root: root, Dir: dir}, nil
	}
	b := Bin{Root: root, Dir: filepath.Join(root, ".cache", "bin", "current")}
	groups, err := b.groups(ctx)
	if err != nil {
		return Bin{}, err
	}
	groups = slices.DeleteFunc(groups, func(g group) bool { return !g.wanted(extras) })
	dirs, err := ensureAll(ctx, groups)
	if err != nil {
		return Bin{}, err
	}
	if err := b.locked(ctx, func() error { return b.build(ctx, dirs) }); err != nil {
		return Bin{}, err
	}
	return b, nil
}

const fakeGCSServer = "fake-gcs-server"

// FakeGCS builds the fake object store alone unless it is built, and returns its path.
func FakeGCS(ctx context.Context) (string, error) {
	dir, err := alone(ctx, Bin.fakeGCS)
	return filepath.Join(dir, fakeGCSServer), err
}

// Servers of S3's protocol.
const (
	VersityGW = "versitygw" // keeps objects in a directory
	GoFakeS3  = "gofakes3"  // keeps them in memory, and overwrites what it shall only create
)

// S3Servers builds the servers of S3's protocol alone unless they are built, and returns their directory.
func S3Servers(ctx context.Context) (dir string, err error) { return alone(ctx, Bin.s3) }

// Promtool returns the path of Prometheus' own tool, which tests alerts, and builds it if need be.
func Promtool(ctx context.Context) (string, error) {
	dir, err := alone(ctx, Bin.promtool)
	return filepath.Join(dir, promtool), err
}

// alone returns the directory of one group's programs.
func alone(ctx context.Context, of func(Bin) group) (dir string, err error) {
	if dir := os.Getenv(Prebuilt); dir != "" {
		return dir, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dirs, err := ensureAll(ctx, []group{of(Bin{Root: root})})
	if err != nil {
		return "", err
	}
	return dirs[0], nil
}

// build links the programs of dirs and builds those of this module.
func (b Bin) build(ctx context.Context, dirs []string) error {
	for _, dir := range dirs {
		if err := linkAll(dir, b.Dir); err != nil {
			return err
		}
	}
	return b.buildOwn(ctx)
}

// buildOwn builds the commands of this module and the programs of the test
// images.
func (b Bin) buildOwn(ctx context.Context) error {
	flags, err := ldflags(ctx, b.Root)
	if err != nil {
		return err
	}
	if err := goBuild(ctx, b.Root, b.Dir+"/", flags, "./cmd/..."); err != nil {
		return err
	}
	images := []string{"./test/images/pause", "./test/workload", "./test/probed", "./runsc/fast/integration/guest"}
	if err := goBuild(ctx, b.Root, b.Path("image")+"/", "-s -w", images...); err != nil {
		return err
	}
	return relink(b.Path("checkpointgofer"), b.Path(sidecar))
}

// Link makes a copy of the programs in dir, by hard links where the file system
// allows it, that no later Build touches. It waits for a build that is under way.
func (b Bin) Link(ctx context.Context, dir string) (Bin, error) {
	err := b.locked(ctx, func() error { return linkAll(b.Dir, dir) })
	return Bin{Root: b.Root, Dir: dir}, err
}

// ldflags returns the linker flags for runsc and for our own commands: both
// name the version of gVisor that they are built from.
func ldflags(ctx context.Context, root string) (string, error) {
	v, err := goOutput(ctx, root, "list", "-m", "-f", "{{.Version}}", gvisor)
	if err != nil {
		return "", err
	}
	return "-s -w -X " + gvisor + "/runsc/version.version=" + strings.TrimSpace(v), nil
}

// goBuild builds static programs from packages of the module in dir into out.
func goBuild(ctx context.Context, dir, out, ldflags string, packages ...string) error {
	_, err := goOutput(ctx, dir, buildArgs(out, ldflags, packages...)...)
	return err
}

// buildArgs are the arguments of the go command for goBuild.
func buildArgs(out, ldflags string, packages ...string) []string {
	return append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out}, packages...)
}

// goOutput runs the go command in the module at dir and returns what it prints.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	return goOutputIn(ctx, dir, nil, args...)
}

// goOutputIn is goOutput with more variables in the environment.
func goOutputIn(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tools: go %s in %s: %w\n%s", args[0], dir, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// moduleRoot finds the directory of this module at or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+Module+"\n") {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("tools: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("tools: the working directory is not inside a clone of %s", Module)
		}
		dir = filepath.Dir(dir)
	}
}
