package runsc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc"
	"diapause.dev/test/privileged"
)

// TestCheckMemoryFile: files in memory and on a disk are memory files, also those that the sentry has opened for
// reading alone.
func TestCheckMemoryFile(t *testing.T) {
	memory, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	if onDisk, err := runsc.CheckMemoryFile(memory); err != nil || onDisk {
		t.Errorf("in memory: on disk %v, %v", onDisk, err)
	}
	f, err := os.CreateTemp("/var/tmp", "diapause-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if onDisk, err := runsc.CheckMemoryFile(int(f.Fd())); err != nil || !onDisk {
		t.Errorf("on disk: on disk %v, %v", onDisk, err)
	}
}

// TestHostileMemoryFile: whatever else a sentry gives is refused, at once.
func TestHostileMemoryFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listening, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	defer listening.Close()
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	for name, fd := range map[string]int{
		"pipe": int(fifo.Fd()), "socket": int(listening.Fd()), "directory": open("/"), "device": open("/dev/zero"),
		"file of /proc": open("/proc/self/status"), "file of /sys": open("/sys/kernel/mm/transparent_hugepage/enabled"),
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, fd) })
	}
	t.Run("FUSE", func(t *testing.T) { wantRefused(t, onFUSE(t)) })
}

// wantRefused has a memory file checked. It must be refused, and nobody waited for.
func wantRefused(t *testing.T, fd int) {
	t.Helper()
	checked := make(chan error, 1)
	go func() {
		_, err := runsc.CheckMemoryFile(fd)
		checked <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case err := <-checked:
		if !errors.Is(err, runsc.ErrMemoryFile) {
			t.Errorf("%v", err)
		}
	case <-ctx.Done():
		t.Error("it waits for somebody")
	}
}

// onFUSE returns a file on a FUSE file system, whose process answers nothing any more once the file is open. Whatever
// asks it then waits: also a poll, and even a close.
func onFUSE(t *testing.T) int {
	t.Helper()
	privileged.Need(t, "a mount by FUSE")
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=100644,user_id=0,group_id=0", device)
	if err := unix.Mount("test", path, "fuse.test", 0, options); err != nil {
		t.Fatal(err)
	}
	hangUp := sync.OnceFunc(func() { unix.Close(device) }) // ends what waits: nothing is asked any more
	t.Cleanup(func() {
		hangUp()
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	defer time.AfterFunc(20*time.Second, hangUp).Stop()
	answered := make(chan error, 1)
	go func() { answered <- answerOpen(device) }()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err := errors.Join(err, <-answered); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hangUp()
		unix.Close(fd)
	})
	return fd
}

// answerOpen answers requests of the kernel until a file is open (include/uapi/linux/fuse.h).
func answerOpen(device int) error {
	const opInit, opOpen = 26, 14
	in := make([]byte, 1<<20)
	for {
		n, err := unix.Read(device, in)
		if err != nil {
			return fmt.Errorf("FUSE: %w", err)
		}
		op, unique := binary.LittleEndian.Uint32(in[4:]), in[8:16]
		var body []byte
		switch op {
		case opInit:
			body = make([]byte, 64)
			copy(body, in[40:min(n, 48)]) // its major and minor version
			binary.LittleEndian.PutUint32(body[20:], 4096)
		case opOpen:
			body = make([]byte, 16)
		default:
			return fmt.Errorf("FUSE: unexpected request %d", op)
		}
		out := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
		out = append(binary.LittleEndian.AppendUint32(out, 0), unique...)
		if _, err := unix.Write(device, append(out, body...)); err != nil {
			return fmt.Errorf("FUSE: %w", err)
		}
		if op == opOpen {
			return nil
		}
	}
}
