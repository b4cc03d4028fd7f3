package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/peercred"
)

// Ways to restart containerd other than a command.
const (
	// RestartNone leaves the restart to others.
	RestartNone = "none"
	// RestartSignal ends containerd with SIGTERM. Its supervisor starts it again.
	RestartSignal = "signal"
)

// Restarter returns the function that restarts containerd. For RestartNone it returns nil. For RestartSignal the
// function sends a signal; for this it must share the host's PID namespace. Otherwise how is a command of the host
// with its arguments, separated by spaces. The function runs it with the host's root directory as its root; for this
// it needs CAP_SYS_CHROOT. Restarter uses only o.Host and o.Socket.
func (o Options) Restarter(how string) (func(context.Context) error, error) {
	args := strings.Fields(how)
	switch {
	case how == RestartNone:
		return nil, nil
	case how == RestartSignal:
		return func(ctx context.Context) error { return terminate(ctx, o.host(o.Socket)) }, nil
	case len(args) == 0:
		return nil, fmt.Errorf("how to restart containerd: want %s, %s or a command of the host, such as systemctl restart "+
			"containerd", RestartNone, RestartSignal)
	}
	return func(ctx context.Context) error { return runOnHost(ctx, o.Host, args) }, nil
}

// hostPath is where commands of the host are searched.
const hostPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// runOnHost runs a command in the root directory host.
func runOnHost(ctx context.Context, host string, args []string) error {
	path, err := findOnHost(host, args[0])
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Env, cmd.Dir = []string{"PATH=" + hostPath}, "/"
	if host != "/" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: host}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// findOnHost returns the path of a program as the host sees it. It does not follow symbolic links, which may lead
// elsewhere on the host than here.
func findOnHost(host, name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range filepath.SplitList(hostPath) {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(filepath.Join(host, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the host has no %s in %s: name another way of restarting containerd", name, hostPath)
}

// exitTime bounds how long containerd may take to exit.
const exitTime = 30 * time.Second

// terminate ends the process that listens on socket with SIGTERM, and returns when the process is gone.
func terminate(ctx context.Context, socket string) error {
	pid, err := listener(ctx, socket)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d, which listens on %s: %w", pid, socket, err)
	}
	defer unix.Close(fd)
	if again, err := listener(ctx, socket); err != nil || again != pid {
		return errors.Join(fmt.Errorf("process %d no longer listens on %s", pid, socket), err)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	return waitExit(ctx, fd, pid)
}

// listener returns the process that listens on a Unix socket.
func listener(ctx context.Context, socket string) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	cred, err := peercred.Of(conn.(*net.UnixConn))
	if err != nil {
		return 0, fmt.Errorf("who listens on %s: %w", socket, err)
	}
	if cred.Pid <= 1 {
		return 0, fmt.Errorf("the process that listens on %s is not seen from here: run in the host's PID namespace", socket)
	}
	return int(cred.Pid), nil
}

// waitExit waits until the process behind a descriptor has exited.
func waitExit(ctx context.Context, fd, pid int) error {
	deadline := time.Now().Add(exitTime)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(restartPoll.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if n > 0 {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("process %d has not ended", pid), ctx.Err())
}
