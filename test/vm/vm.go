package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Machine says what a virtual machine has.
type Machine struct {
	Cache string // directory in which the kernel is kept
	// Files are the files on its disk besides busybox, by path: where each is on this machine. A directory stands for all
	// that is in it.
	Files  map[string]string
	Script string // run by busybox's sh as root
	MiB    int    // of memory
}

// done is what the console shows last, with the script's exit code.
const done = "vm: script ended with "

// Run boots the machine, runs its script, and returns what that printed. It is an error if the script fails, or if the
// machine has not ended when ctx does. What the machine has on its disk is gone then.
func (m Machine) Run(ctx context.Context) (string, error) {
	k, err := getKernel(ctx, m.Cache)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(m.Cache, "machine")
	if err != nil {
		return "", fmt.Errorf("vm: %w", err)
	}
	defer os.RemoveAll(dir)
	disk, initrd := filepath.Join(dir, "disk"), filepath.Join(dir, "initrd")
	if err := errors.Join(m.writeDisk(ctx, disk), k.writeInitrd(ctx, initrd)); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = m.boot(ctx, k, disk, initrd, &out)
	return ended(out.String(), err)
}

// options are the kernel's. Without no_timer_check it counts the timer's interrupts while it boots, and panics if the
// emulator, on a busy machine, delivers too few in time ("IO-APIC + timer doesn't work!"). With nohz=off an idle
// processor looks for work at each tick: if the emulator lost what should wake it, a program would wait until its own
// time limit.
const options = "console=ttyS0 quiet panic=-1 cgroup_no_v1=all no_timer_check nohz=off"

// boot runs the machine until it ends, or ctx does.
func (m Machine) boot(ctx context.Context, k kernel, disk, initrd string, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-m", fmt.Sprint(m.MiB), "-smp", "2",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", k.image, "-initrd", initrd, "-append", options,
		"-drive", "file="+disk+",format=raw,if=virtio,cache=unsafe")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}

// ended returns what a script printed, and an error unless it succeeded.
func ended(console string, err error) (string, error) {
	console = strings.ReplaceAll(console, "\r\n", "\n")
	printed, code, ok := strings.Cut(console, done)
	if !ok {
		return printed, errors.Join(errors.New("vm: the machine ended before its script did"), err)
	}
	if code, _, _ = strings.Cut(code, "\n"); code != "0" {
		return printed, fmt.Errorf("vm: the script ended with exit code %.10q", code)
	}
	return printed, err
}
