package work

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Syscalls returns work of two system calls a piece: one that reads a byte, and one that does nothing. close ends it,
// once nobody does any.
func Syscalls() (piece func(int), close func() error, err error) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		return nil, nil, fmt.Errorf("work on system calls: %w", err)
	}
	fd := int(zero.Fd())
	return func(int) {
		var b [1]byte
		_, _ = unix.Read(fd, b[:]) // it is the call that counts
		_ = unix.Getppid()
	}, zero.Close, nil
}
