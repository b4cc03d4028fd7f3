package bed

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// tmpDir is a short path, since sockets are made below it, to a directory on disk.
const tmpDir = "/run/tmp"

// layers is where the private changes to the machine's directories go.
const layers = "/run/bed"

// disks are the directories on the scratch disk, by name, and where they are seen.
var disks = map[string]string{
	"containerd": "/var/lib/containerd",
	"diapause":   "/var/lib/diapause",
	"etcd":       "/var/lib/etcd",
	"kubelet":    "/var/lib/kubelet",
	"log":        logDir,
	"programs":   "/opt/diapause",
	"tmp":        tmpDir,
}

// mount lays out the file tree: /run is empty, /etc, /opt and /var/lib are the
// machine's with private changes, what grows is on the scratch disk, and the
// machine sees no mount of it.
func (t ticket) mount() error {
	steps := []func() error{
		func() error { return mountOn("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") },
		t.unmountBed,
		func() error { return mountOn("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "") },
		func() error { return mountOn("proc", "/proc", "proc", 0, "") },
		func() error { return mountOn("tmpfs", "/run", "tmpfs", 0, "mode=755") },
		func() error { return mountOver("/etc") },
		func() error { return mountOver("/opt") },
		func() error { return mountOver("/var/lib") },
		t.mountDisks,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// unmountBed gives a node of a cluster the machine's directories in place of the
// bed's.
func (t ticket) unmountBed() error {
	if t.Role != roleNode {
		return nil
	}
	for _, dir := range []string{logDir, "/var/lib", "/opt/diapause", "/opt", "/etc", "/run"} {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	return nil
}

// mountDisks shows the directories of the scratch disk.
func (t ticket) mountDisks() error {
	for name, target := range disks {
		if err := mountOn(filepath.Join(t.Scratch, name), target, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func mountOn(source, target, fstype string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
	}
	return nil
}

// mountOver makes dir writable with no change to what is there on the machine.
func mountOver(dir string) error {
	upper, work := filepath.Join(layers, dir, "upper"), filepath.Join(layers, dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return mountOn("overlay", dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work))
}
