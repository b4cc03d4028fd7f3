package dir_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"diapause.dev/storage/dir"
	"diapause.dev/test/privileged"
)

// TestCheckShared: a disk passes, even if the directory does not exist yet. A real FUSE mount does not.
func TestCheckShared(t *testing.T) {
	path := t.TempDir()
	if err := dir.CheckShared(filepath.Join(path, "not", "made", "yet")); err != nil {
		t.Error(err)
	}
	privileged.Need(t, "a mount by FUSE")
	fuse, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/fuse: %v", err)
	}
	defer syscall.Close(fuse) // nothing was written
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)
	if err := syscall.Mount("test", path, "fuse.test", 0, options); err != nil {
		t.Fatalf("mount fuse: %v", err)
	}
	var server sync.WaitGroup
	server.Go(func() { serve(t, fuse) })
	defer func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
		server.Wait()
	}()
	if err := dir.CheckShared(path); err == nil || !strings.Contains(err.Error(), "FUSE") {
		t.Errorf("FUSE: %v", err)
	}
}

// Requests of the kernel that serve answers.
const fuseForget, fuseGetattr, fuseStatfs, fuseInit = 2, 3, 17, 26

// serve serves a FUSE file system of one empty directory until it is unmounted.
func serve(t *testing.T, fuse int) {
	request := make([]byte, 1<<17)
	order := binary.LittleEndian
	for {
		if _, err := syscall.Read(fuse, request); errors.Is(err, syscall.ENODEV) {
			return // unmounted
		} else if err != nil {
			t.Error(err)
			return
		}
		body, errno := []byte(nil), syscall.Errno(0)
		switch order.Uint32(request[4:]) {
		case fuseForget:
			continue
		case fuseInit: // version 7.31
			body = make([]byte, 64)
			order.PutUint32(body, 7)
			order.PutUint32(body[4:], 31)
			order.PutUint32(body[20:], 4096)
		case fuseStatfs:
			body = make([]byte, 80)
		case fuseGetattr:
			body = make([]byte, 104)
			order.PutUint64(body[16:], 1)
			order.PutUint32(body[76:], syscall.S_IFDIR|0o755)
			order.PutUint32(body[80:], 2)
		default:
			errno = syscall.ENOSYS
		}
		answer := make([]byte, 16, 16+len(body))
		order.PutUint32(answer, uint32(16+len(body)))
		order.PutUint32(answer[4:], uint32(-int32(errno)))
		copy(answer[8:], request[8:16])
		if _, err := syscall.Write(fuse, append(answer, body...)); err != nil {
			t.Error(err)
			return
		}
	}
}
