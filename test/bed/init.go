package bed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// init is the first process in the bed's PID namespace. It makes the node,
// starts the program inside, and reaps every orphan until that ends. With its
// own end the kernel ends whatever is left, once nothing is frozen.
func (t ticket) init() (int, error) {
	if err := errors.Join(t.furnish(), makeNetwork()); err != nil {
		return 1, err
	}
	t.Role = roleInside
	cmd, err := t.command()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	for {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &s, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 1, fmt.Errorf("wait for the processes of the bed: %w", err)
		}
		if pid == cmd.Process.Pid {
			thaw(t.Name)
			return exitCode(s), nil
		}
	}
}

// furnish gives the fresh namespaces the file tree and the name of a node.
func (t ticket) furnish() error {
	if err := t.mount(); err != nil {
		return err
	}
	return t.writeEtc()
}

// settle makes the process that Enter returns in at home in the bed.
func (t ticket) settle() error {
	os.Unsetenv(variable) // a program started from here may make a bed of its own
	os.Setenv("PATH", t.Bin.Dir+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	os.Setenv("TMPDIR", tmpDir)
	here = &t
	return nil
}

// writeEtc writes the files of /etc that containerd copies into pods.
func (t ticket) writeEtc() error {
	files := map[string]string{
		"hosts":       "127.0.0.1 localhost\n" + t.IP + " " + t.Name + "\n",
		"hostname":    t.Name + "\n",
		"resolv.conf": "nameserver " + bedIP + "\n",
	}
	for name, content := range files {
		path := filepath.Join("/etc", name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // it may be a link to where there is nothing now
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return syscall.Sethostname([]byte(t.Name))
}
