package sleep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"diapause.dev/runsc/traffic"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// muted are the packet sockets of a sandbox that waits for its containers. They get no TCP. Otherwise the sandbox, once
// it has loaded, would see the segments of probes that are long over. GVisor can panic if a segment comes for a socket
// that listens while it restores that socket. Whoever has sent a segment that nobody answers repeats it.
//
// They are descriptors and no files: package os changes whether a socket blocks, and so the sandbox's.
type muted []int

// maxDescriptors bounds how many descriptors of a sandbox are looked at.
const maxDescriptors = 4096

// noTCP lets all frames pass except those of TCP over IPv4, and over IPv6 without extension headers.
var noTCP = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2}, // EtherType
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeIPv4, SkipFalse: 2},
	bpf.LoadAbsolute{Off: etherHeader + 9, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoTCP, SkipTrue: 4, SkipFalse: 3},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeIPv6, SkipFalse: 2},
	bpf.LoadAbsolute{Off: etherHeader + 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoTCP, SkipTrue: 1},
	bpf.RetConstant{Val: 1<<32 - 1},
	bpf.RetConstant{Val: 0},
}

// mute keeps TCP from the packet sockets of a process. If it has none, that is an error.
func mute(pid int) (m muted, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("keep TCP from the packet sockets of process %d: %w", pid, err), m.unmute())
		}
	}()
	if m, err = packetSockets(pid); err != nil {
		return m, err
	}
	if len(m) == 0 {
		return m, errors.New("it has none")
	}
	for _, fd := range m {
		if err := traffic.Attach(fd, noTCP); err != nil {
			return m, err
		}
	}
	return m, nil
}

// unmute undoes mute. The zero value has nothing to undo.
func (m muted) unmute() (err error) {
	for _, fd := range m {
		e := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		if errors.Is(e, unix.ENOENT) { // it has none
			e = nil
		}
		err = errors.Join(err, e, unix.Close(fd))
	}
	return err
}

// packetSockets returns the packet sockets of a process.
func packetSockets(pid int) (all muted, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxDescriptors)
	if err != nil {
		return nil, err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open the process: %w", err)
	}
	defer unix.Close(process)
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir, name))
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		fd, ok, err := packetSocketOf(process, name)
		if err != nil {
			return all, err
		}
		if ok {
			all = append(all, fd)
		}
	}
	return all, nil
}

// packetSocketOf returns a descriptor of a process. ok is false if it is no packet socket, or is closed by now.
func packetSocketOf(process int, name string) (fd int, ok bool, err error) {
	n, err := strconv.Atoi(name)
	if err != nil {
		return 0, false, err
	}
	fd, err = unix.PidfdGetfd(process, n, 0)
	if errors.Is(err, unix.EBADF) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("get descriptor %d: %w", n, err)
	}
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_PACKET {
		return 0, false, unix.Close(fd)
	}
	return fd, true, nil
}
