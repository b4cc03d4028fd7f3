// Command tree makes a copy of gVisor's source with the patches of package fast applied, and helps to maintain them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"diapause.dev/runsc/fast"
)

const usage = `usage:
  tree SOURCE DIRECTORY            make DIRECTORY the gVisor module at SOURCE with the patches
  tree edit DIRECTORY              make DIRECTORY a git repository of gVisor with one commit a patch, to change them in
  tree export DIRECTORY            write the patches and patches/UPSTREAM from that repository
  tree rehearse DIRECTORY VERSION  try the patches with that version of gVisor in the git repository DIRECTORY`

func main() {
	err := run(context.Background(), os.Args[1:])
	if errors.Is(err, errUsage) {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong arguments")

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "edit":
		return runEdit(ctx, args[1])
	case len(args) == 2 && args[0] == "export":
		return runExport(ctx, args[1])
	case len(args) == 3 && args[0] == "rehearse":
		return runRehearsal(ctx, args[1], args[2])
	case len(args) == 2:
		return fast.Tree(args[0], args[1])
	}
	return errUsage
}

func runEdit(ctx context.Context, dir string) error {
	expected, err := fast.Expected()
	if err != nil {
		return err
	}
	source, _, err := moduleDir(ctx, expected.Version)
	if err != nil {
		return err
	}
	patches, err := patchDir(ctx)
	if err != nil {
		return err
	}
	_, err = edit(ctx, dir, source, expected.Version, patches)
	return err
}

func runExport(ctx context.Context, dir string) error {
	patches, err := patchDir(ctx)
	if err != nil {
		return err
	}
	return export(ctx, dir, patches)
}

// branch is where gVisor has what its module is made from. A proxy may serve versions alone.
const branch = "go"

func runRehearsal(ctx context.Context, dir, version string) error {
	expected, err := fast.Expected()
	if err != nil {
		return err
	}
	r := rehearsal{expected: expected, dir: dir, out: os.Stdout}
	if r.before, _, err = moduleDir(ctx, expected.Version); err != nil {
		return err
	}
	if r.after, r.version, err = moduleDir(ctx, version); err != nil && version == branch {
		fmt.Printf("The branch %q cannot be had, so this is the newest version that can: %v\n", branch, err)
		r.after, r.version, err = moduleDir(ctx, "latest")
	}
	if err != nil {
		return err
	}
	if r.patches, err = patchDir(ctx); err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	return r.build(ctx, filepath.Join(r.patches, "../../.."))
}

// moduleDir returns the directory of a version of gVisor, which may be a query like "latest", and what that version is.
func moduleDir(ctx context.Context, query string) (dir, version string, err error) {
	version, err = line(output(ctx, "", nil, "go", "list", "-m", "-f", "{{.Version}}", fast.Module+"@"+query))
	if err != nil {
		return "", "", err
	}
	// Unlike list, this brings a version that go.mod does not name.
	if _, err = output(ctx, "", nil, "go", "mod", "download", fast.Module+"@"+version); err != nil {
		return "", "", err
	}
	cache, err := line(output(ctx, "", nil, "go", "env", "GOMODCACHE"))
	if err != nil {
		return "", "", err
	}
	return filepath.Join(cache, filepath.FromSlash(fast.Module)+"@"+version), version, nil
}

// patchDir returns the directory of the patches in the checkout that is worked in.
func patchDir(ctx context.Context) (string, error) {
	dir, err := line(output(ctx, "", nil, "go", "list", "-f", "{{.Dir}}", "diapause.dev/runsc/fast"))
	return filepath.Join(dir, "patches"), err
}
