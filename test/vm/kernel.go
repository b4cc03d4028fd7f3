package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"diapause.dev/test/tools"
)

// kernelPackage depends on Debian's newest kernel for virtual machines.
const kernelPackage = "linux-image-cloud-amd64"

// kernel is a kernel with its modules.
type kernel struct {
	image   string // file
	release string
	root    string // below which its modules are
}

// getKernel returns the kernel kept in a directory, downloaded now if there is none.
func getKernel(ctx context.Context, cache string) (kernel, error) {
	root := filepath.Join(cache, "kernel")
	if k, err := kernelIn(root); err == nil {
		return k, nil
	}
	part := root + ".part"
	if err := errors.Join(os.RemoveAll(part), os.RemoveAll(root), os.MkdirAll(part, 0o755)); err != nil {
		return kernel{}, fmt.Errorf("vm: %w", err)
	}
	if err := download(ctx, part); err != nil {
		return kernel{}, err
	}
	if err := os.Rename(part, root); err != nil {
		return kernel{}, fmt.Errorf("vm: %w", err)
	}
	return kernelIn(root)
}

func kernelIn(root string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return kernel{}, fmt.Errorf("vm: %d kernels in %s: %w", len(images), root, errors.Join(err, os.ErrNotExist))
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	return kernel{image: images[0], release: release, root: root}, nil
}

// download unpacks the kernel's package, and notes which of its modules need which.
func download(ctx context.Context, dir string) error {
	name, err := dependency(ctx, kernelPackage)
	if err != nil {
		return err
	}
	if err := run(ctx, dir, "apt-get", "download", "-q", name); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("vm: %d files of package %s", len(files), name)
	}
	if err := run(ctx, dir, "dpkg", "-x", files[0], "."); err != nil {
		return err
	}
	k, err := kernelIn(dir)
	if err != nil {
		return err
	}
	// The program finds what is not compressed, as Debian's modules are not.
	return errors.Join(run(ctx, dir, tools.Busybox, "depmod", "-b", dir, k.release), os.Remove(files[0]))
}

// dependency returns the package that another one stands for.
func dependency(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", name).Output()
	if err != nil {
		return "", fmt.Errorf("vm: apt-cache depends %s: %w", name, err)
	}
	for line := range strings.Lines(string(out)) {
		if on, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
			return on, nil
		}
	}
	return "", fmt.Errorf("vm: package %s is not known: apt-get update", name)
}

// run runs a command in a directory.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("vm: %s %s: %w\n%s", name, args[0], err, out)
	}
	return nil
}
