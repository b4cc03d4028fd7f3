package sidecar

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of a process that serves a sentry.
const (
	maxData  = 512 << 20 // bytes of its own memory; files that the sentry shares with it do not count
	maxFiles = 4 << 10   // file descriptors
	nobody   = 65534     // user and group
)

// confine gives up what this process does not need to serve a sentry that saves: root's identity, all capabilities, and
// memory without a limit. A sentry may have been taken over, and so may whatever reads its messages.
func confine() error {
	for limit, most := range map[int]uint64{
		unix.RLIMIT_DATA: maxData, unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("confine: limit %d: %w", limit, err)
		}
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"groups", func() error { return syscall.Setgroups(nil) }},
		{"group", func() error { return syscall.Setresgid(nobody, nobody, nobody) }},
		{"user", func() error { return syscall.Setresuid(nobody, nobody, nobody) }},
		{"capabilities", dropCapabilities},
		{"new privileges", refuseNewPrivileges},
		{"core dumps", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("confine: give up %s: %w", step.what, err)
		}
	}
	return nil
}

// dropCapabilities empties all sets of capabilities but the bounding set.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// refuseNewPrivileges keeps whatever this process executes from getting rights that it has not itself.
func refuseNewPrivileges() error {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return errno
	}
	return nil
}
