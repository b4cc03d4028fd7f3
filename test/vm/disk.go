package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/test/tools"
)

// diskMiB is the size of a machine's disk, which takes no more room than its files do.
const diskMiB = 4096

// first is the first process of the initrd, and second that of the disk.
var (
	//go:embed first.sh
	first string
	//go:embed second.sh
	second string
)

// modules are those that the kernel of Debian has not built in.
var modules = []string{"virtio_pci", "virtio_blk", "overlay", "veth", "bridge"}

// writeDisk writes the disk with the machine's files.
func (m Machine) writeDisk(ctx context.Context, disk string) error {
	root := disk + ".root"
	defer os.RemoveAll(root)
	files := map[string]string{"/bin/busybox": tools.Busybox}
	for to, from := range m.Files {
		files[to] = from
	}
	if err := place(root, files, map[string]string{"/init": second, "/script": m.Script}); err != nil {
		return err
	}
	for _, dir := range []string{"dev", "etc", "opt", "proc", "run", "sys", "tmp", "var/lib", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return fmt.Errorf("vm: %w", err)
		}
	}
	return run(ctx, root, "mke2fs", "-q", "-t", "ext4", "-d", root, disk, fmt.Sprint(diskMiB, "M"))
}

// writeInitrd writes what the kernel starts: it loads modules and goes over to the disk.
func (k kernel) writeInitrd(ctx context.Context, initrd string) error {
	root := initrd + ".root"
	defer os.RemoveAll(root)
	lib := filepath.Join("/lib/modules", k.release)
	files := map[string]string{"/bin/busybox": tools.Busybox}
	script := strings.ReplaceAll(first, "MODULES", strings.Join(modules, " "))
	for _, name := range []string{
		"modules.dep", "kernel/drivers/virtio", "kernel/drivers/block/virtio_blk.ko",
		"kernel/fs/overlayfs", "kernel/drivers/net/veth.ko", "kernel/net/bridge", "kernel/net/llc", "kernel/net/802",
	} {
		files[filepath.Join(lib, name)] = filepath.Join(k.root, lib, name)
	}
	if err := place(root, files, map[string]string{"/init": script}); err != nil {
		return err
	}
	return run(ctx, root, "sh", "-c", "find . | cpio -o -H newc --quiet > "+initrd)
}

// place makes files in a directory: links of others, and those with the given contents, which are scripts.
func place(root string, files, scripts map[string]string) error {
	for to, from := range files {
		if err := link(from, filepath.Join(root, to)); err != nil {
			return fmt.Errorf("vm: %w", err)
		}
	}
	for to, content := range scripts {
		if err := os.WriteFile(filepath.Join(root, to), []byte(content), 0o755); err != nil {
			return fmt.Errorf("vm: %w", err)
		}
	}
	return nil
}

// link makes a file, or all files of a directory, appear under another path.
func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return linkFile(path, filepath.Join(to, rel))
	})
}

func linkFile(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Link(from, to); err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
