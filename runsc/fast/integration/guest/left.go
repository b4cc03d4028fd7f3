package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// leaveBehind starts a guest that serves a socket and has this one's standard output, and waits until it has set
// everything up.
func leaveBehind(socket string) error {
	cmd := exec.Command("/proc/self/exe", "--socket="+socket, "--dir="+socket+".files", "--files=100", "--threads=5")
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	return inquire(socket, "wait")
}

// gone waits until no process serves a socket. A socket that was never made is an error.
func gone(socket string) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			return nil
		case err != nil:
			return err
		}
		c.Close()
		if time.Now().After(end) {
			return errors.New("it is still served")
		}
	}
}

// withoutOutput uses the standard output, of which gVisor has only the number. It answers "ok" if each use fails and
// none takes long.
func withoutOutput() string {
	events := []unix.PollFd{{Fd: 1, Events: unix.POLLOUT}}
	_, err := unix.Poll(events, 10)
	if err != nil {
		return fmt.Sprintf("poll: %v", err)
	}
	for name, use := range map[string]func() error{
		"write": func() error { _, err := unix.Write(1, []byte("lost\n")); return err },
		"fstat": func() error { return unix.Fstat(1, new(unix.Stat_t)) },
		"ioctl": func() error { _, err := unix.IoctlGetInt(1, unix.TIOCINQ); return err },
		"open":  func() error { _, err := unix.Open("/proc/self/fd/1", unix.O_WRONLY, 0); return err },
	} {
		if err := use(); !errors.Is(err, unix.EBADF) {
			return fmt.Sprintf("%s: %v, not EBADF", name, err)
		}
	}
	poll, err := unix.EpollCreate1(0)
	if err != nil {
		return fmt.Sprintf("epoll: %v", err)
	}
	defer unix.Close(poll)
	if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, 1, &unix.EpollEvent{Events: unix.EPOLLOUT}); err == nil {
		return "epoll takes it"
	}
	return "ok"
}
